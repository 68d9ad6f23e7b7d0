"""What a batch hears of its rows' ends: nothing, too late, or twice."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch import collect, run_batch
from producer.batch.desk import Desk
from producer.batch.results import Ended, Results
from producer.batch.window import Window
from producer.fleet import Fleet
from producer.requests import JobRequest
from protocol import errors, keys
from protocol.call import Call, run
from protocol.functions import Finished, finish
from protocol.messages import DoneNotice, Outcome
from protocol.states import State
from tests.producer.batch_files import by_id, impatient, leftovers, row, until_queued
from tests.producer.batch_runs import counting
from tests.producer.tiny import TinyWorker, serving
from tests.support.waiting import eventually


async def test_ends_that_nobody_told_of_are_found(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream of notices is gone, and one job with it: the jobs are looked at, and the lost one runs again."""
    impatient(monkeypatch)
    source, target = files
    source.write_text("\n".join(row(f"r{n}", f"say {n}") for n in range(4)))
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 4)
    lost, *others = await worker.take()
    for attempt in others:
        await attempt.echo()
    await lost.echo()
    found: list[bytes] = await run(redis, Call(("KEYS", "*:done:*"), list))
    gone = [keys.job(lost.handle), keys.result(lost.handle)]
    await run(redis, Call(("DEL", *found, *gone), int))
    async with serving(worker):
        summary = await running
    assert (summary.rows_out, summary.rows_failed) == (4, 0)
    assert len(by_id(target)) == 4


async def test_a_notice_of_an_end_that_was_seen_before_does_not_count_as_a_loss(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    """A look saw a job's end first, and its row was sent again: the late notice tells of a job that lives."""
    source, target = files
    source.write_text(row("r"))
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 1)
    attempt = await worker.take_one()
    handle = attempt.handle
    reply = await run(redis, Call(("HGET", keys.job(handle), "reply"), bytes.decode))
    done = keys.done(handle.shard, handle.tenant, reply)

    async def read() -> bool:
        assert not running.done()
        return not await redis.xlen(done)

    for _ in range(collect.MOST_SENDS + 1):
        await redis.xadd(done, {"j": handle.ref, "a": attempt.number, "s": "expired"})
        await eventually(read)
    await attempt.finish("done")
    summary = await running
    assert (summary.rows_out, summary.rows_failed) == (1, 0)
    assert await leftovers(redis) == []


@pytest.mark.parametrize("when", ["before it is read", "once it is read"])
async def test_an_expired_job_goes_with_its_own_notice(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """One of the row's earlier job comes late; the row is sent again once, and without a look."""
    source, target = files
    source.write_text(row("r"))
    running = asyncio.create_task(run_batch(fleet, source, target, deadline=600))
    await until_queued(redis, 1)
    attempt = await worker.take_one()
    handle = attempt.handle
    reply = await run(redis, Call(("HGET", keys.job(handle), "reply"), bytes.decode))
    expired = Outcome(state=State.EXPIRED)
    endings = Results.endings

    async def endings_after(self: Results, *ended: Any) -> Any:
        monkeypatch.undo()
        await attempt.end(expired)
        return await endings(self, *ended)

    pipe = redis.pipeline(transaction=True)
    pipe.xadd(keys.done(handle.shard, handle.tenant, reply), {"j": handle.ref, "a": attempt.number - 1, "s": "expired"})
    if when == "before it is read":
        pipe.execute_command(*finish(Finished(handle, attempt.number, worker.name, 0, expired)).command)
    else:
        monkeypatch.setattr(Results, "endings", endings_after)
    await pipe.execute()
    async with counting(worker) as prompts, asyncio.timeout(collect.SILENCE_S):
        summary = await running
    assert (summary.rows_out, summary.rows_failed, len(prompts)) == (1, 0, 1)
    assert await leftovers(redis) == []


async def test_a_job_that_two_notices_tell_of_gives_its_answer(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    """A submit that is repeated after the end, as a durable one, has it told once more; both may be read at once."""
    source, target = files
    source.write_text(row("r", "say it once"))
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 1)
    attempt = await worker.take_one()
    handle = attempt.handle
    reply = await run(redis, Call(("HGET", keys.job(handle), "reply"), bytes.decode))
    ended = Finished(handle, attempt.number, worker.name, 0, Outcome(state=State.COMPLETED, status_code=200, body={}))
    pipe = redis.pipeline(transaction=True)
    pipe.execute_command(*finish(ended).command)
    done = keys.done(handle.shard, handle.tenant, reply)
    pipe.execute_command("XADD", done, "*", "j", handle.ref, "a", attempt.number, "s", "completed")
    await pipe.execute()
    async with asyncio.timeout(5):
        summary = await running
    assert (summary.rows_out, summary.rows_failed) == (1, 0)
    assert await leftovers(redis) == []


async def test_the_last_row_leaves_nothing_when_it_ends_by_an_earlier_notice(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of its own end is read after it."""
    notices, unread = Results.notices, list[DoneNotice]()

    async def one_by_one(self: Results, *asked: Any, **options: Any) -> list[DoneNotice]:
        unread.extend(() if unread else await notices(self, *asked, **options))
        return [unread.pop(0)] if unread else []

    monkeypatch.setattr(Results, "notices", one_by_one)
    source, target = files
    source.write_text(row("r"))
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 1)
    attempt = await worker.take_one()
    handle = attempt.handle
    reply = await run(redis, Call(("HGET", keys.job(handle), "reply"), bytes.decode))
    outcome = Outcome(state=State.COMPLETED, status_code=200, body={})
    pipe = redis.pipeline(transaction=True)
    pipe.xadd(keys.done(handle.shard, handle.tenant, reply), {"j": handle.ref, "a": attempt.number - 1, "s": "expired"})
    pipe.execute_command(*finish(Finished(handle, attempt.number, worker.name, 0, outcome)).command)
    await pipe.execute()
    assert (await running).rows_out == 1
    assert await leftovers(redis) == []


@pytest.mark.parametrize("when", ["while its end is read", "after its end was written"])
async def test_a_row_that_is_refused_as_its_job_ends_has_one_line(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """As of an earlier run's job, whose submit is refused by now: another model, or an overwritten key."""
    submit_many, endings, sent, write = Fleet.submit_many, Results.endings, Window.sent, Desk.write
    ended, refused = asyncio.Event(), asyncio.Event()

    async def submitted(self: Fleet, requests: Sequence[JobRequest], **options: Any) -> Any:
        answers = await submit_many(self, requests, **options)
        if not requests[0].id.endswith("-2"):
            return answers
        await ended.wait()
        return [errors.InvalidRequest("no")]

    async def read(self: Results, jobs: Sequence[Ended]) -> Any:
        found = await endings(self, jobs)
        if when == "while its end is read" and any(job.handle.own_id.endswith("-2") for job in jobs):
            ended.set()
            await refused.wait()
        return found

    async def waited(self: Window, own_ids: Iterable[str]) -> None:
        ids = list(own_ids)
        if any(own_id.endswith("-2") for own_id in ids):
            ended.set()
        await sent(self, ids)

    def written(self: Desk, done: Sequence[Any]) -> None:
        write(self, done)
        if any(finished.refused for *_, finished in done):
            refused.set()

    monkeypatch.setattr(Fleet, "submit_many", submitted)
    monkeypatch.setattr(Results, "endings", read)
    monkeypatch.setattr(Window, "sent", waited)
    monkeypatch.setattr(Desk, "write", written)
    source, target = files
    source.write_text("\n".join(row(f"r{n}", f"say {n}") for n in range(2)))
    async with serving(worker), asyncio.timeout(20):
        summary = await run_batch(fleet, source, target, window=1)
    assert summary.rows_out == 2
    assert len(by_id(target)) == 2
    assert (by_id(target)["r1"]["error"] is not None) is (when == "while its end is read")
    assert await leftovers(redis) == []
