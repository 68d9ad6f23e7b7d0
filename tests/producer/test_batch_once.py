"""Jobs of an earlier run that end in the moment when the next run submits their rows: none is done a second time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch import run_batch
from producer.batch.collect import Collector
from producer.batch.results import Results
from producer.fleet import Fleet
from producer.jobs import Job
from producer.requests import JobRequest
from protocol.errors import FleetError, StoreFull
from protocol.messages import DoneNotice
from tests.producer.batch_files import by_id, leftovers, written
from tests.producer.batch_runs import counting, finished, write_rows
from tests.producer.tiny import Attempt, TinyWorker
from tests.support.waiting import eventually

ROWS, DONE = 6, 2
TURNS = 100
"""Round trips that are more than enough for the collector to forget what it has written."""
Answers = list[Job | FleetError]


@pytest.fixture
async def left(fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]) -> list[Attempt]:
    """A run broke off while an engine had these."""
    source, target = files
    write_rows(source, ROWS)
    running = asyncio.create_task(run_batch(fleet, source, target, keep=True))
    attempts = await finished(worker, running, target, DONE)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return attempts


@asynccontextmanager
async def resumed(fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]) -> AsyncIterator[None]:
    """Resume the batch: each row has its answer, no engine started anything, and Redis is empty."""
    async with counting(worker) as prompts:
        summary = await run_batch(fleet, *files, resume=True)
        yield
    assert prompts == []
    assert (summary.rows_out, summary.rows_failed, len(by_id(files[1]))) == (ROWS, 0, ROWS)
    assert await leftovers(redis) == []


async def end(attempts: Iterable[Attempt], redis: Redis, target: Path) -> None:
    """They end, and the collector has one at least: what it does then is done, but for what it waits with."""
    for attempt in attempts:
        await attempt.echo()
    await eventually(lambda: len(written(target)) > DONE)
    for _ in range(TURNS):
        await redis.ping()


async def test_rows_that_end_before_their_second_submit_arrives(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    left: list[Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forgotten before it, they would be new jobs."""
    submit_many = Fleet.submit_many

    async def slow(self: Fleet, requests: Iterable[JobRequest], **how: Any) -> Answers:
        await end(left, redis, files[1])
        return await submit_many(self, requests, **how)

    monkeypatch.setattr(Fleet, "submit_many", slow)
    async with resumed(fleet, worker, redis, files):
        pass


async def test_rows_that_end_between_two_tries_to_submit_them(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    left: list[Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis was full at the first."""
    submit_many, tries = Fleet.submit_many, list[list[JobRequest]]()

    async def full_once(self: Fleet, requests: Iterable[JobRequest], **how: Any) -> Answers:
        tries.append(list(requests))
        if len(tries) > 1:
            return await submit_many(self, tries[-1], **how)
        await end(left, redis, files[1])
        return [StoreFull("full") for _ in tries[-1]]

    monkeypatch.setattr(Fleet, "submit_many", full_once)
    async with resumed(fleet, worker, redis, files):
        pass
    assert [len(requests) for requests in tries] == [ROWS - DONE, 0]


async def test_rows_whose_end_is_told_twice_at_once(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    left: list[Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They end before the second submit, which asks for another notice: both are read together."""
    submitted, submit_many, catch_up = asyncio.Event(), Fleet.submit_many, Collector.catch_up
    notices, most = Results.notices, list[int]()

    async def catch_up_before(self: Collector) -> None:
        await catch_up(self)
        for attempt in left:
            await attempt.echo()
        monkeypatch.setattr(Results, "notices", notices_after)

    async def submit_at_last(self: Fleet, requests: Iterable[JobRequest], **how: Any) -> Answers:
        answers = await submit_many(self, requests, **how)
        submitted.set()
        return answers

    async def notices_after(self: Results, *where: Any) -> list[DoneNotice]:
        await submitted.wait()
        found = await notices(self, *where)
        most.append(len(found))
        return found

    monkeypatch.setattr(Collector, "catch_up", catch_up_before)
    monkeypatch.setattr(Fleet, "submit_many", submit_at_last)
    async with resumed(fleet, worker, redis, files):
        pass
    assert most[0] == 2 * (ROWS - DONE)
