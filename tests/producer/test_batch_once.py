"""Jobs that end in the moment when their rows are submitted again, mostly by the next run: none is done twice."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from redis.asyncio import Redis

from producer.batch import run_batch
from producer.batch.collect import Collector
from producer.batch.results import Results
from producer.fleet import Fleet
from producer.jobs import Job
from producer.requests import JobRequest
from protocol import keys
from protocol.call import run
from protocol.errors import FleetError, NotDurable, StoreFull
from protocol.messages import DoneNotice
from protocol.reads import standing
from tests.producer.batch_files import by_id, leftovers, written
from tests.producer.batch_runs import codes, counting, finished, write_rows
from tests.producer.tiny import Attempt, TinyWorker
from tests.support.builders import SHARD, tick_as
from tests.support.store_clock import StoreClock
from tests.support.waiting import eventually

ROWS, DONE = 6, 2
STRIKES = 3
TURNS = 100
"""Round trips that are more than enough for the collector to forget what it has written."""
Answers = list[Job | FleetError]


Fate = Literal["answered", "failed", "refused", "set aside"]


@dataclass
class Left:
    """Rows that engines have while no run of their batch is there; one alone if it is to be set aside."""

    fate: Fate
    attempts: list[Attempt]

    async def end(self) -> None:
        for attempt in self.attempts:
            match self.fate:
                case "answered":
                    await attempt.echo()
                case "failed":
                    await attempt.fail("engine_error")
                case "refused":
                    await attempt.refuse(400)
                case "set aside":
                    await attempt.strike()

    @property
    def counts(self) -> tuple[int, int]:
        """Of the whole batch: rows that have ended, and rows that have failed."""
        rows = len(self.attempts)
        return DONE + rows, 0 if self.fate == "answered" else rows

    @property
    def kept(self) -> int:
        """Keys that stay in Redis: what was set aside can be replayed."""
        return 3 if self.fate == "set aside" else 0


@pytest.fixture(params=get_args(Fate))
def fate(request: pytest.FixtureRequest) -> Fate:
    found: Fate = request.param
    return found


@pytest.fixture
async def left(fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path], fate: Fate) -> Left:
    """A run broke off while an engine had these; the one to be set aside has killed two."""
    source, target = files
    write_rows(source, DONE + 1 if fate == "set aside" else ROWS)
    running = asyncio.create_task(run_batch(fleet, source, target, keep=True))
    attempts = await finished(worker, running, target, DONE)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for _ in range(STRIKES - 1 if fate == "set aside" else 0):
        await attempts[0].strike()
        attempts = await worker.take()
    return Left(fate, attempts)


@asynccontextmanager
async def resumed(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path], left: Left
) -> AsyncIterator[None]:
    """Resume the batch: each row has its one line, no engine started anything, and Redis is empty."""
    async with counting(worker) as prompts:
        summary = await run_batch(fleet, *files, resume=True)
        yield
    assert prompts == []
    assert (summary.rows_out, summary.rows_failed) == left.counts
    assert len(by_id(files[1])) == summary.rows_out
    assert len(await leftovers(redis)) == left.kept


async def end(left: Left, redis: Redis, target: Path) -> None:
    """They end, and the collector has one at least: what it does then is done, but for what it waits with."""
    await left.end()
    await eventually(lambda: len(written(target)) > DONE)
    for _ in range(TURNS):
        await redis.ping()


async def test_rows_that_end_before_their_second_submit_arrives(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    left: Left,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forgotten before it, they would be new jobs."""
    submit_many = Fleet.submit_many

    async def slow(self: Fleet, requests: Iterable[JobRequest], **how: Any) -> Answers:
        await end(left, redis, files[1])
        return await submit_many(self, requests, **how)

    monkeypatch.setattr(Fleet, "submit_many", slow)
    async with resumed(fleet, worker, redis, files, left):
        pass


async def test_rows_that_end_between_two_tries_to_submit_them(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    left: Left,
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
    async with resumed(fleet, worker, redis, files, left):
        pass
    assert [len(requests) for requests in tries] == [len(left.attempts), 0]


async def test_rows_whose_end_is_told_twice_at_once(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    left: Left,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They end before the second submit, which asks for another notice: both are read together."""
    submitted, submit_many, catch_up = asyncio.Event(), Fleet.submit_many, Collector.catch_up
    notices, most = Results.notices, list[int]()

    async def catch_up_before(self: Collector) -> None:
        monkeypatch.setattr(Collector, "catch_up", catch_up)
        await self.catch_up()
        await left.end()
        monkeypatch.setattr(Results, "notices", notices_after)

    async def submit_at_last(self: Fleet, requests: Iterable[JobRequest], **how: Any) -> Answers:
        answers = await submit_many(self, requests, **how)
        submitted.set()
        return answers

    async def notices_after(self: Results, *where: Any, **how: Any) -> list[DoneNotice]:
        await submitted.wait()
        found = await notices(self, *where, **how)
        most.append(len(found))
        return found

    monkeypatch.setattr(Collector, "catch_up", catch_up_before)
    monkeypatch.setattr(Fleet, "submit_many", submit_at_last)
    async with resumed(fleet, worker, redis, files, left):
        pass
    assert most[0] == 2 * len(left.attempts)


@pytest.mark.parametrize("fate", ["set aside"])
async def test_a_row_that_was_set_aside_and_whose_notice_is_gone(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path], left: Left
) -> None:
    """Notices may be kept for less time than what was set aside: it must not kill three engines more."""
    await left.end()
    batch_id = left.attempts[0].handle.own_id.rpartition("-")[0]
    assert await redis.delete(keys.done(SHARD, "t", batch_id)) == 1
    async with resumed(fleet, worker, redis, files, left):
        pass


async def test_rows_of_a_first_run_that_fail_before_it_submits_them_again(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time Redis has them, but not safe; nobody has looked at their ends yet."""
    source, target = files
    write_rows(source, ROWS)
    submit_many, notices = Fleet.submit_many, Results.notices
    again, tries = asyncio.Event(), list[int]()

    async def unsafe_once(self: Fleet, requests: Iterable[JobRequest], **how: Any) -> Answers:
        answers = await submit_many(self, requests, **how | {"durable": False})
        tries.append(len(answers))
        if len(tries) > 1:
            again.set()
            return answers
        for attempt in await worker.take():
            await attempt.fail("engine_error")
        return [NotDurable(str(job.handle)) for job in answers if isinstance(job, Job)]

    async def notices_after(self: Results, *where: Any, **how: Any) -> list[DoneNotice]:
        await again.wait()
        return await notices(self, *where, **how)

    monkeypatch.setattr(Fleet, "submit_many", unsafe_once)
    monkeypatch.setattr(Results, "notices", notices_after)
    running = asyncio.create_task(run_batch(fleet, source, target, durable=True))
    await again.wait()
    async with counting(worker) as prompts:
        summary = await running
    assert (prompts, tries) == ([], [ROWS, ROWS])
    assert (summary.rows_out, summary.rows_failed, len(by_id(target))) == (ROWS, ROWS, ROWS)
    assert await leftovers(redis) == []


async def test_a_batch_that_begins_anew_under_its_old_id_runs_its_failed_rows(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    """What an earlier batch has left set aside under the same ids is no end of its rows."""
    write_rows(files[0], 1)
    running = asyncio.create_task(run_batch(fleet, *files, batch_id="mine"))
    attempts: list[Attempt] = []

    async def taken() -> bool:
        attempts.extend(await worker.take())
        return bool(attempts)

    for _ in range(STRIKES):
        await eventually(taken)
        await attempts.pop().strike()
    assert (await running).rows_failed == 1
    async with counting(worker) as prompts:
        summary = await run_batch(fleet, *files, batch_id="mine", overwrite=True)
    assert (prompts, summary.rows_failed) == (["say 0"], 0)


@pytest.mark.parametrize("when", ["before it looks", "before it submits", "after it submitted"])
async def test_rows_that_expire_by_an_old_deadline_run_by_the_new_one(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    store_clock: StoreClock,
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """They were under way when the batch broke off; the batch that goes on has more time than they."""
    write_rows(files[0], 6)
    running = asyncio.create_task(run_batch(fleet, *files, keep=True, deadline=60))
    held = await finished(worker, running, files[1], 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    to_come, submit_many = {when}, Fleet.submit_many

    async def reach(moment: str) -> None:
        if moment in to_come:
            to_come.remove(moment)
            store_clock.advance(60_001)
            await run(redis, tick_as())
            # Its own worker may have been first; by then they may run anew.
            for attempt in held:
                at = await run(redis, standing(attempt.handle))
                assert at is None or at.state.terminal or at.attempt != attempt.number

    async def submit(self: Fleet, requests: Iterable[JobRequest], **how: Any) -> Answers:
        await reach("before it submits")
        answers = await submit_many(self, requests, **how)
        await reach("after it submitted")
        return answers

    monkeypatch.setattr(Fleet, "submit_many", submit)
    await reach("before it looks")
    async with counting(worker) as prompts:
        summary = await run_batch(fleet, *files, resume=True, deadline=600)
    assert to_come == set()
    assert (summary.state, summary.rows_out, summary.rows_failed) == ("completed", 6, 0)
    assert sorted(prompts) == sorted(attempt.prompt for attempt in held)
    assert set(codes(by_id(files[1])).values()) == {None}
    assert await leftovers(redis) == []
