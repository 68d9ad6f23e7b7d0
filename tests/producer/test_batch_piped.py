"""A batch whose input came through a pipe goes on only with the same input, or with none."""

import asyncio
import io
import os
import sys
from pathlib import Path

import pytest

from producer.batch import run_batch
from producer.batch.source import BLOCK_BYTES
from producer.fleet import Fleet
from protocol import errors
from tests.producer.batch_files import by_id, row
from tests.producer.batch_runs import finished
from tests.producer.tiny import TinyWorker, serving

GIVEN = "".join(row(f"r{n}", f"say {n}") + "\n" for n in range(6))
# More than one block, and a change in the last byte alone.
LONG = "".join(row(f"r{n}", "x" * BLOCK_BYTES) + "\n" for n in range(2))


def bring(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    monkeypatch.setattr(sys, "stdin", None if text is None else io.TextIOWrapper(io.BytesIO(text.encode())))


async def break_off(fleet: Fleet, worker: TinyWorker, target: Path) -> None:
    """As after a kill: some rows are done, the others are under way."""
    running = asyncio.create_task(run_batch(fleet, "-", target, keep=True))
    left = await finished(worker, running, target, 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for attempt in left:
        await attempt.echo()


@pytest.mark.parametrize("again", [GIVEN, "", None], ids=["the same", "empty", "closed"])
async def test_the_same_or_none_goes_on(
    fleet: Fleet, worker: TinyWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, again: str | None
) -> None:
    bring(monkeypatch, GIVEN)
    await break_off(fleet, worker, target := tmp_path / "out.jsonl")
    bring(monkeypatch, again)
    async with serving(worker):
        summary = await run_batch(fleet, "-", target, resume=True)
    assert (summary.rows_before, summary.rows_in, len(by_id(target))) == (2, 6, 6)


@pytest.mark.parametrize(
    "other", [GIVEN.replace("say 5", "say 6"), GIVEN[:-1], GIVEN + "\n", row("x")], ids=["byte", "less", "more", "new"]
)
async def test_another_one_is_refused(
    fleet: Fleet, worker: TinyWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: str
) -> None:
    """Also once the batch has completed: nobody is told that the other one did."""
    bring(monkeypatch, GIVEN)
    await break_off(fleet, worker, target := tmp_path / "out.jsonl")
    bring(monkeypatch, other)
    with pytest.raises(errors.InputChanged, match="stdin brings something else"):
        await run_batch(fleet, "-", target, resume=True)
    bring(monkeypatch, "")
    async with serving(worker):
        await run_batch(fleet, "-", target, resume=True)
    bring(monkeypatch, other)
    with pytest.raises(errors.InputChanged):
        await run_batch(fleet, "-", target, resume=True)


async def ran(fleet: Fleet, worker: TinyWorker, target: Path) -> None:
    async with serving(worker):
        await run_batch(fleet, "-", target)


async def test_it_is_compared_to_its_last_byte(
    fleet: Fleet, worker: TinyWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bring(monkeypatch, LONG)
    await ran(fleet, worker, tmp_path / "out.jsonl")
    bring(monkeypatch, LONG)
    assert (await run_batch(fleet, "-", tmp_path / "out.jsonl", resume=True)).was_over
    bring(monkeypatch, LONG[:-1] + " ")
    with pytest.raises(errors.InputChanged):
        await run_batch(fleet, "-", tmp_path / "out.jsonl", resume=True)


async def test_behind_a_limit_more_may_come(
    fleet: Fleet, worker: TinyWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only its first block was kept: what stands behind it was never looked at."""
    bring(monkeypatch, LONG)
    async with serving(worker):
        await run_batch(fleet, "-", tmp_path / "out.jsonl", limit=1)
    bring(monkeypatch, LONG)
    assert (await run_batch(fleet, "-", tmp_path / "out.jsonl", limit=1, resume=True)).was_over
    bring(monkeypatch, GIVEN)
    with pytest.raises(errors.InputChanged):
        await run_batch(fleet, "-", tmp_path / "out.jsonl", limit=1, resume=True)


async def test_a_named_pipe_is_compared_too(
    fleet: Fleet, worker: TinyWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bring(monkeypatch, GIVEN)
    await ran(fleet, worker, tmp_path / "out.jsonl")
    os.mkfifo(pipe := tmp_path / "pipe")
    for text, same in ((GIVEN, True), (row("x"), False)):
        resumed = asyncio.create_task(run_batch(fleet, pipe, tmp_path / "out.jsonl", resume=True))
        await asyncio.to_thread(pipe.write_text, text)
        (result,) = await asyncio.gather(resumed, return_exceptions=True)
        assert isinstance(result, errors.InputChanged) != same, result


async def test_a_silent_pipe_keeps_no_stop_waiting(
    fleet: Fleet, worker: TinyWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bring(monkeypatch, GIVEN)
    await ran(fleet, worker, tmp_path / "out.jsonl")
    out, into = os.pipe()
    with os.fdopen(out, "r") as stdin, os.fdopen(into, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        async with asyncio.timeout(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await run_batch(fleet, "-", tmp_path / "out.jsonl", resume=True)
