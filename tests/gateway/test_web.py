"""Pages of other origins, and HTTPS without a proxy: both only where they are asked for."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from click.testing import CliRunner
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from producer.gateway.auth import Grant
from protocol.errors import SetupError
from protocol.wire import dumps
from tests.access.certificates import Certificates
from tests.gateway.serving import CHAT, QUICK, Ring, Served, serving, taken
from tests.gateway.test_cli import running
from tests.producer.tiny import TinyWorker
from tokenfleet.cli import main as cli

PAGE = "https://app.example"
PATH = "/v1/chat/completions"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
SHOWN = "access-control-allow-origin"


@pytest.fixture
async def shared(valkey_url: str, worker: TinyWorker) -> AsyncIterator[Served]:
    """A gateway that lets one origin's pages ask."""
    async with serving(valkey_url, options=replace(QUICK, origins=(PAGE,))) as served:
        yield served


async def test_a_page_of_the_origin_may_ask_and_read(shared: Served, worker: TinyWorker) -> None:
    async with shared.http() as http:
        before = await http.options(PATH, headers={"origin": PAGE, **PREFLIGHT})
        async with http.stream("POST", PATH, json=CHAT | {"stream": True}, headers={"origin": PAGE}) as stream:
            await (await taken(worker)).finish("yes")
            await stream.aread()
        refused = await http.post(PATH, json={}, headers={"origin": PAGE})
    assert before.status_code == 200
    assert "authorization" in before.headers["access-control-allow-headers"]
    assert "POST" in before.headers["access-control-allow-methods"]
    assert {answer.headers[SHOWN] for answer in (before, stream, refused)} == {PAGE}
    assert "x-request-id" in stream.headers["access-control-expose-headers"]


async def test_other_pages_may_not(shared: Served, front: Served) -> None:
    """Nor any page at all, where no origin was named."""
    for served, origin in ((shared, "https://evil.example"), (front, PAGE)):
        async with served.http() as http:
            before = await http.options(PATH, headers={"origin": origin, **PREFLIGHT})
            looked = await http.get("/v1/models", headers={"origin": origin})
        assert before.status_code in (400, 405)
        assert SHOWN not in before.headers
        assert SHOWN not in looked.headers


async def test_no_page_asks_unseen_where_no_key_is_asked_for(
    shared: Served, worker: TinyWorker, valkey_url: str
) -> None:
    """Browsers send a form, or a body without a type, for any page: no answer can be read, but the job would run."""
    evil = {"origin": "https://evil.example"}
    path = "/v1/requests/bench.0.default.none"
    guarded = serving(valkey_url, ring=Ring({"any": Grant("default", "id")}))
    async with shared.http() as http, guarded as keyed, keyed.http() as bearer:
        refused = await http.post(PATH, content=dumps(CHAT), headers=evil)
        own = await http.get(path, headers={"origin": shared.url})
        named = await http.get(path, headers={"origin": PAGE})
        with_key = await bearer.get(path, headers=evil)
        with pytest.raises(InvalidStatus) as socket:
            await connect(f"{shared.url.replace('http', 'ws')}{path}/ws", additional_headers=evil)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "permission_denied")
    assert socket.value.response.status_code == 403
    assert {answer.status_code for answer in (own, named, with_key)} == {404}
    assert await worker.take() == []


async def test_https(valkey_url: str, worker: TinyWorker, certificates: Certificates) -> None:
    options = replace(QUICK, certificate=certificates.pem("good"), private_key=certificates.key("good"))
    trusting = ssl.create_default_context(cafile=certificates.pem("ca"))
    async with serving(valkey_url, options=options) as served:
        url = served.url.replace("http://127.0.0.1", "https://localhost")
        async with httpx.AsyncClient(base_url=url, verify=trusting, trust_env=False) as http:
            asked = asyncio.create_task(http.post(PATH, json=CHAT | {"stream": True}))
            attempt = await taken(worker)
            await attempt.say("yes")
            await attempt.finish()
            said = (await asked).content
        async with served.http() as plain:
            with pytest.raises(httpx.TransportError):
                await plain.get("/health")
    assert b"yes" in said
    assert said.endswith(b"data: [DONE]\n\n")


async def test_a_key_of_another_certificate(valkey_url: str, certificates: Certificates) -> None:
    options = replace(QUICK, certificate=certificates.pem("good"), private_key=certificates.key("other"))
    with pytest.raises(SetupError, match="certificate"):
        async with serving(valkey_url, options=options) as served:
            await served.ended.wait()


def test_the_process_says_https(valkey_url: str, certificates: Certificates) -> None:
    files = ("--tls-cert", str(certificates.pem("good")), "--tls-key", str(certificates.key("good")))
    with running(valkey_url, "--open", "--cors", PAGE, "--cors", "http://localhost:3000", *files) as gateway:
        assert gateway.url.startswith("https://")


@pytest.mark.parametrize(
    "words", [["--cors", "app.example"], ["--cors", f"{PAGE}/page"], ["--cors", "null"], ["--tls-cert", __file__]]
)
def test_what_would_only_show_in_a_browser_is_refused_at_once(words: list[str]) -> None:
    refused = CliRunner().invoke(cli, ["gateway", "--open", *words])
    assert refused.exit_code == 2
    assert words[0] in refused.output
