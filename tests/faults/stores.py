"""Redis that is killed, frozen, full or flushed."""

import asyncio
import resource
from dataclasses import replace

from redis.asyncio import Redis

from producer.jobs import Job
from protocol.call import Call, run
from protocol.errors import LibraryMissing, StoreFull, StoreUnavailable
from protocol.states import State
from tests.faults.matrix import Fault, Scenario, Seen
from tests.faults.stage import RESUME_S, Reading, Stage, now, read, undisturbed
from tests.support.waiting import eventually

JOBS = 6


async def streams(stage: Stage, words: int = 200) -> tuple[list[Job], list["asyncio.Task[Reading]"]]:
    """Jobs that have begun to speak, with followers."""
    jobs = [await stage.submit(f"s{n}", words=words) for n in range(JOBS)]
    readings = [asyncio.create_task(read(stage.fleet, job)) for job in jobs]
    for job in jobs:
        await stage.spoken(job)
    states = [(await job.info()).record.state for job in jobs]
    assert State.RUNNING in states, "all of them have ended: the fault would meet none"
    return jobs, readings


async def all_undisturbed(jobs: list[Job], readings: list["asyncio.Task[Reading]"]) -> None:
    for job, reading in zip(jobs, readings, strict=True):
        await undisturbed(job, reading)
        assert (await job.info()).record.strikes == 0, "somebody was blamed for Redis"


async def killed(stage: Stage) -> Seen:
    await stage.crew(2)
    jobs, readings = await streams(stage)
    stage.server.kill(written=True)
    stage.server.start()
    up_at = now()
    after = await stage.submit("after", words=5)
    await after.result(timeout=20)
    recovery_s = now() - up_at
    await all_undisturbed(jobs, readings)
    assert recovery_s <= RESUME_S, f"served again after {recovery_s:.1f} s"
    return Seen(f"{JOBS} streams whole, no strikes", recovery_s)


async def frozen(stage: Stage) -> Seen:
    await stage.crew(2)
    jobs, readings = await streams(stage)
    hasty = await stage.client(patience_s=0)
    await hasty.models()
    stage.server.pause()
    asked_at = now()
    try:
        await hasty.models()
        raise AssertionError("a frozen Redis answered")
    except StoreUnavailable:
        waited_s = now() - asked_at
    stage.server.resume()
    up_at = now()
    after = await stage.submit("after", words=5)
    await after.result(timeout=20)
    recovery_s = now() - up_at
    await all_undisturbed(jobs, readings)
    assert waited_s <= 6, f"a call hung for {waited_s:.1f} s"
    assert recovery_s <= RESUME_S, f"served again after {recovery_s:.1f} s"
    return Seen(f"a call gave up after {waited_s:.1f} s; all went on", recovery_s)


async def memory_full(stage: Stage) -> Seen:
    await stage.crew()
    jobs, readings = await streams(stage)
    await _set(stage.fleet.redis, "maxmemory", "1mb")
    await _refused(stage)
    await all_undisturbed(jobs, readings)
    await _set(stage.fleet.redis, "maxmemory", "0")
    return await _served(stage, "refused with a typed error while the running jobs finished")


async def disk_full(stage: Stage) -> Seen:
    """A limit to the size of its files makes the server's writes fail as a full disk does."""
    _, worker = await stage.crew()
    job = await stage.submit(words=300)
    reading = asyncio.create_task(read(stage.fleet, job))
    await stage.running(job)
    _, hard = resource.prlimit(stage.server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(stage.server.pid, resource.RLIMIT_FSIZE, (1, hard))
    await eventually(lambda: _refused(stage), 10)
    # No beat is taken either: the worker stops by its own clock, and waits.
    await eventually(lambda: worker.says("lease_over"), 10)
    resource.prlimit(stage.server.pid, resource.RLIMIT_FSIZE, (hard, hard))
    seen = await _served(stage, "refused with a typed error; all goes on once there is room")
    await undisturbed(job, reading)
    assert (worker.code, (await job.info()).record.strikes) == (None, 0), "somebody was blamed for a full disk"
    return seen


async def _set(redis: Redis, name: str, value: str) -> None:
    await run(redis, Call(("CONFIG", "SET", name, value), bool))


async def _refused(stage: Stage) -> bool:
    try:
        await stage.submit(words=1)
    except StoreFull as error:
        return bool(error.code)
    raise AssertionError("a full Redis took a job")


async def _served(stage: Stage, what: str) -> Seen:
    began_at = now()
    job = None
    while job is None:
        try:
            job = await stage.submit(words=5)
        except StoreFull:
            assert now() - began_at < RESUME_S, "it still takes no work"
            await asyncio.sleep(0)
    outcome = await job.result(timeout=20)
    recovery_s = now() - began_at
    assert outcome.state is State.COMPLETED
    assert recovery_s <= RESUME_S, f"served again after {recovery_s:.1f} s"
    return Seen(what, recovery_s)


async def flushed(stage: Stage) -> Seen:
    await stage.crew()
    jobs, readings = await streams(stage)
    redis = stage.fleet.redis
    await run(redis, Call(("SCRIPT", "FLUSH"), bool))
    await run(redis, Call(("FUNCTION", "FLUSH"), bool))
    flushed_at = now()
    after = await _submitted_once_there(stage)
    await after.result(timeout=20)
    recovery_s = now() - flushed_at
    await all_undisturbed(jobs, readings)
    assert recovery_s <= RESUME_S, f"served again after {recovery_s:.1f} s"
    return Seen("loaded again by the scheduler, nothing half written", recovery_s)


async def _submitted_once_there(stage: Stage) -> Job:
    """Who comes in the moment without a library is told so, and nothing is stored."""
    while True:
        try:
            return await stage.submit("after", words=5)
        except LibraryMissing:
            await asyncio.sleep(0)


def on_both(name: str, expected: str, scenario: Scenario, extra: tuple[str, ...] = ()) -> tuple[Fault, Fault]:
    """On Valkey, and on Redis 7 where there is time for it."""
    plain = Fault(name, expected, scenario, extra=extra)
    return plain, replace(plain, name=f"{name} (Redis 7)", server="redis7", slow=True)


ROWS = (
    Fault("kill -9 of Valkey, and a restart", "all resume within 5 s", killed),
    Fault("kill -9 of Redis 7, and a restart", "all resume within 5 s", killed, server="redis7"),
    Fault("SIGSTOP of Redis, then SIGCONT", "calls time out, nothing hangs; all resume within 5 s", frozen, slow=True),
    *on_both("maxmemory is reached", "submits refused, running jobs finish, recovers", memory_full),
    *on_both("the disk is full", "submits refused with a typed error, recovers", disk_full),
    *on_both("FUNCTION FLUSH and SCRIPT FLUSH", "loaded again, nothing half written", flushed),
)
