"""Each small batch of the cases gives on an embedded fleet what is to be expected of it, from the command's side."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from producer.fleet import Fleet
from protocol import keys
from protocol.call import Call, run
from protocol.settings import Settings
from tests.batches.commands import CASES, Shell
from tests.support.nursery import Nursery
from tokenfleet.up.commands import SMALL_MODEL, FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

pytestmark = pytest.mark.asyncio(loop_scope="module")
RUN = {
    "bom": ["r1", "r2", "r3", "r4"],
    "crlf": ["r1", "r2", "r3", "r4"],
    "no-final-newline": ["r1", "r2", "r3", "r4"],
    "blank-lines": ["r1", "r2", "r3", "r4"],
    "line-separators-inside": ["r1", "r2", "r3"],
}
REFUSED = {
    "duplicate-id": [(3, "duplicate_custom_id", "line 1"), (5, "duplicate_custom_id", "line 2")],
    "not-objects": [(line, "", "") for line in (2, 3, 4, 5)],
    "broken-lines": [(2, "invalid_json_line", ""), (4, "invalid_json_line", "")],
    "missing-fields": [(1, "", "method"), (2, "", "custom_id"), (3, "", "body")],
    "wrong-urls": [(line, "url_mismatch", "url") for line in (2, 3, 4)],
    "stream-true": [(2, "", "stream")],
    "mixed-models": [(2, "", "model")],
    "bad-values": [
        *((line, "invalid_request", "max_tokens") for line in (1, 2, 3)),
        (4, "invalid_request", "temperature"),
        (5, "invalid_request", "n"),
        *((line, "invalid_request", "messages") for line in (6, 7)),
        (8, "invalid_request", "top_p"),
        (9, "invalid_request", "max_tokens"),
    ],
    "empty": [(1, "empty_file", "no rows")],
    "lone-surrogate": [(2, "invalid_json_line", "surrogate")],
    "bad-utf8": [(2, "invalid_json_line", "byte 16")],
}
"""What each line's report names: the line, the code, and words of the message."""
ENGINE = {"engine-killers": (["r1", "r3", "r4"], ["r2", "r5", "r6"], 4), "long-prompt": (["r1", "r3"], ["r2"], 2)}
"""Only the engine, or what it told of itself, can judge them: which rows are answered, which fail, and how many
attempts all of them take. The seed of r5, and the prompt that is too long, are refused by their submit:
no engine sees them."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as parent:
        yield parent


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedded() -> AsyncIterator[EmbeddedFleet]:
    pytest.importorskip("xllamacpp")
    async with EmbeddedFleet(FleetOptions(engine="llama", model=SMALL_MODEL, workers=1)) as fleet:
        await fleet.ready(120)
        yield fleet


@pytest.fixture
def shell(nursery: Nursery, embedded: EmbeddedFleet, tmp_path: Path) -> Shell:
    return Shell(nursery, embedded.redis_url, tmp_path)


def engine_of(embedded: EmbeddedFleet) -> int:
    """The process id of llama.cpp, which is a child of its worker."""
    family = psutil.Process(embedded.process("worker-1").pid).children(recursive=True)
    (engine,) = [child.pid for child in family if "llama_child" in " ".join(child.cmdline())]
    return engine


async def test_every_case_is_here() -> None:
    assert {path.stem for path in CASES.glob("*.jsonl")} == {*RUN, *REFUSED, *ENGINE}


@pytest.mark.parametrize("name", RUN)
async def test_a_file_whose_rows_run(shell: Shell, name: str) -> None:
    ended = await shell.batch(name)
    assert ended.code == 0, ended.said
    assert sorted(ended.out) == RUN[name]
    assert not ended.errors
    assert all(line["response"]["status_code"] == 200 for line in ended.out.values())
    assert await shell.proven(name)


@pytest.mark.parametrize("name", REFUSED)
async def test_a_file_that_is_refused(shell: Shell, name: str) -> None:
    ended = await shell.batch(name)
    assert ended.code == 2, ended.said
    assert [line for line, _, _ in ended.problems] == [line for line, _, _ in REFUSED[name]], ended.said
    for (_, code, message), (_, wanted, words) in zip(ended.problems, REFUSED[name], strict=True):
        assert wanted in ("", code)
        assert words in message
    assert not ended.out
    assert not ended.errors


async def test_bad_lines_that_are_skipped_stand_in_the_error_file(shell: Shell) -> None:
    ended = await shell.batch("broken-lines", "--on-invalid", "skip")
    assert ended.code == 3, ended.said
    assert sorted(ended.out) == ["r1", "r3", "r4"]
    assert sorted(ended.errors) == ["line 2", "line 4"]
    assert {line["error"]["code"] for line in ended.errors.values()} == {"invalid_json_line"}
    assert await shell.proven("broken-lines")


@pytest.mark.parametrize("name", ENGINE)
async def test_a_file_that_only_the_engine_can_judge(shell: Shell, embedded: EmbeddedFleet, name: str) -> None:
    before = engine_of(embedded)
    async with Fleet(settings=Settings(redis_url=embedded.redis_url)) as fleet:
        attempts = Call(("HGET", keys.clock(embedded.shard), "attempt"), lambda reply: int(reply or 0))
        earlier = await run(fleet.redis, attempts)
        ended = await shell.batch(name)
        tried = await run(fleet.redis, attempts) - earlier
    assert ended.code == 3, ended.said
    answered, failed, attempts_needed = ENGINE[name]
    assert (sorted(ended.out), sorted(ended.errors)) == (answered, failed)
    assert engine_of(embedded) == before, "the engine lives"
    assert tried == attempts_needed, "no row is tried again"
    assert await shell.proven(name)
