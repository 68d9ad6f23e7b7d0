"""Rows whose jobs end without an outcome that can be read."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch import collect, run_batch
from producer.batch.results import Results
from producer.fleet import Fleet
from producer.requests import JobRequest
from protocol import keys
from protocol.functions import Finished, finish
from protocol.messages import Outcome
from protocol.states import State
from tests.producer.batch_files import by_id, impatient, row, until_queued
from tests.producer.tiny import Attempt, TinyWorker


async def _ended_by_hand(redis: Redis, attempt: Attempt, of_another_type: bool) -> str:
    """It ends, and its result is overwritten at once: nobody can have seen the true one. The result's key."""
    key = keys.result(attempt.handle)
    ended = Finished(attempt.handle, attempt.number, attempt.worker.name, 0, Outcome(state=State.COMPLETED, body={}))
    pipe = redis.pipeline(transaction=True)
    pipe.execute_command(*finish(ended).command)
    pipe.delete(key)
    pipe.hset(key, "x", "y") if of_another_type else pipe.set(key, "{")
    await pipe.execute()
    return key


@pytest.mark.parametrize("of_another_type", [False, True])
async def test_a_row_whose_result_was_overwritten_by_hand_gets_an_error_alone(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    of_another_type: bool,
) -> None:
    impatient(monkeypatch)
    source, target = files
    source.write_text("\n".join(row(f"r{n}", f"say {n}") for n in range(3)))
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 3)
    first, *others = await worker.take()
    key = await _ended_by_hand(redis, first, of_another_type)
    for attempt in others:
        await attempt.finish("done")
    summary = await running
    await redis.delete(key)
    assert (summary.rows_out, summary.rows_failed) == (3, 1)
    failed = [line["error"]["code"] for line in by_id(target).values() if line["error"]]
    assert failed == ["lost"]


def told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end by two notices that are read at once."""
    notices = Results.notices

    async def twice(self: Results, *asked: Any, **options: Any) -> Any:
        return [
            again for one in await notices(self, *asked, **options) for again in (replace(one, entry_id="0-1"), one)
        ]

    monkeypatch.setattr(Results, "notices", twice)


@pytest.mark.parametrize("of_another_type", [False, True])
async def test_an_ended_job_stays_whose_end_is_told_again_before_its_submit_is_answered(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    of_another_type: bool,
) -> None:
    """Its result was overwritten by hand. Forgotten meanwhile, it would run anew, which nobody here would serve."""
    impatient(monkeypatch)
    told_twice(monkeypatch)
    submit_many, endings, told = Fleet.submit_many, Results.endings, asyncio.Event()

    async def submitted(self: Fleet, requests: Sequence[JobRequest], **options: Any) -> Any:
        told.clear()
        answers = await submit_many(self, requests, **options)
        if sends:
            await told.wait()
        sends.append(len(requests))
        return answers

    async def read(self: Results, *ended: Any) -> Any:
        found = await endings(self, *ended)
        told.set()
        return found

    sends: list[int] = []
    monkeypatch.setattr(Fleet, "submit_many", submitted)
    monkeypatch.setattr(Results, "endings", read)
    source, target = files
    source.write_text(row("r"))
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 1)
    key = await _ended_by_hand(redis, await worker.take_one(), of_another_type)
    async with asyncio.timeout(10):
        assert (await running).rows_failed == 1
    await redis.delete(key)
    assert by_id(target)["r"]["error"]["code"] == "lost"
    assert len(sends) == collect.MOST_SENDS
