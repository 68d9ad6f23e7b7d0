"""The gateway's own page: a fuzzer that reads it finds no answer that it does not tell of."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from producer.gateway import description
from producer.gateway.app import application
from producer.gateway.failures import STATUSES
from protocol import watch
from protocol.call import run
from protocol.wire import JsonObject, dumps
from tests.gateway.serving import MODEL, Served
from tests.producer.tiny import TinyWorker
from tests.support.fuzz import EXAMPLES

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
FEW = 5
"""Examples for each path. Asked for in the environment, there are more of them, and each bound of each member too."""
_NO = {"/health": {"503"}, "/ready": {"503"}, "/metrics": {"404"}}
"""What those say no with that ask for no key."""


def page() -> JsonObject:
    return description.document("tokenfleet", "1")


async def test_a_fuzzer_finds_nothing_that_the_page_does_not_tell(
    front: Served, worker: TinyWorker, tmp_path: Path
) -> None:
    """It asks for the model that there is, or most of what it tries would end there; the worker says yes."""
    told = page()
    echoing = asyncio.create_task(answer_all(worker))
    for name in ("ChatRequest", "CompletionRequest", "EmbeddingsRequest"):
        told["components"]["schemas"][name]["properties"]["model"] = {"const": MODEL}
    # Who waits for no time at all is told 504, as it asked.
    del told["components"]["schemas"]["FleetOptions"]["properties"]["wait"]
    (tmp_path / "page.json").write_bytes(dumps(told))
    command = ["-m", "schemathesis.cli", "run", "page.json", "--url", front.url, "--checks", ",".join(CHECKS)]
    asked = os.environ.get(EXAMPLES)
    command += ["--phases", "coverage,fuzzing" if asked else "fuzzing", "--max-examples", asked or str(FEW)]
    command += ["--seed", "1"]
    fuzzer = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await fuzzer.communicate()
    echoing.cancel()
    await asyncio.gather(echoing, return_exceptions=True)
    assert fuzzer.returncode == 0, said.decode()[-6000:]


async def answer_all(worker: TinyWorker) -> None:
    """Whatever is asked, for as long as it takes."""
    while True:
        await worker.join()
        for attempt in await worker.take():
            await attempt.finish("yes")
        await run(worker.redis, watch.hint(worker.shard, 20))


async def test_the_page_is_served(sim: Served) -> None:
    async with sim.http() as http:
        served = (await http.get("/openapi.json")).json()
        assert served["paths"] == page()["paths"]
        assert "/openapi.json" in (await http.get("/docs")).text


async def test_the_page_has_all_paths_but_the_live_page_s_and_the_websocket(sim: Served) -> None:
    routes = {
        route.path.replace("{id:path}", "{id}") for route in application(sim.gateway).routes if hasattr(route, "path")
    }
    left_out = {path for path in routes - page()["paths"].keys() if not path.startswith("/fleet")}
    assert left_out == {"/v1/requests/{id}/ws", "/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"}
    assert page()["paths"].keys() <= routes


@pytest.mark.parametrize("path", sorted(page()["paths"]))
def test_each_path_tells_of_each_error(path: str) -> None:
    for operation in page()["paths"][path].values():
        expected = _NO.get(path, {str(status) for status in STATUSES})
        assert expected <= operation["responses"].keys()
