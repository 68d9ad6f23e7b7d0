"""What a batch hears of its rows' ends: nothing, too late, twice, or what nobody can read."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch import collect, run_batch
from producer.batch.results import Results
from producer.fleet import Fleet
from producer.requests import JobRequest
from protocol import keys
from protocol.call import Call, run
from protocol.functions import Finished, finish
from protocol.messages import Outcome
from protocol.states import State
from tests.producer.batch_files import by_id, impatient, leftovers, row, until_queued
from tests.producer.batch_runs import counting
from tests.producer.tiny import Attempt, TinyWorker, serving
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
