"""Redis that is killed, frozen, full, flushed, demoted, behind or elsewhere in time."""

import asyncio
import os
import resource
from pathlib import Path

from redis import Redis as SyncRedis
from redis.asyncio import Redis

from producer.jobs import Job
from protocol.call import Call, run, run_sync
from protocol.errors import LibraryMissing, StoreFull, StoreUnavailable
from protocol.states import State
from tests.faults.matrix import Fault, Seen
from tests.faults.stage import RESUME_S, Reading, Stage, now, read, undisturbed
from tests.support.servers import Server, valkey_binary
from tests.support.store_clock import AgingClock
from tests.support.waiting import eventually

HOUR_MS = 3_600_000
JOBS = 6
AT_ONCE = ("--repl-diskless-sync-delay", "0")


async def _streams(stage: Stage, words: int = 150) -> tuple[list[Job], list["asyncio.Task[Reading]"]]:
    """Jobs that speak, with followers."""
    jobs = [await stage.submit(f"s{n}", words=words) for n in range(JOBS)]
    readings = [asyncio.create_task(read(stage.fleet, job)) for job in jobs]
    for job in jobs:
        await stage.running(job)
    return jobs, readings


async def _all_undisturbed(stage: Stage, jobs: list[Job], readings: list["asyncio.Task[Reading]"]) -> None:
    for job, reading in zip(jobs, readings, strict=True):
        await undisturbed(job, reading)
        assert (await job.info()).record.strikes == 0, "somebody was blamed for Redis"


async def killed(stage: Stage) -> Seen:
    await stage.crew(2)
    jobs, readings = await _streams(stage)
    stage.server.kill()
    stage.server.start()
    up_at = now()
    after = await stage.submit("after", words=5)
    await after.result(timeout=20)
    recovery_s = now() - up_at
    await _all_undisturbed(stage, jobs, readings)
    assert recovery_s <= RESUME_S, f"served again after {recovery_s:.1f} s"
    return Seen(f"{JOBS} streams whole, no strikes", recovery_s)


async def frozen(stage: Stage) -> Seen:
    await stage.crew(2)
    jobs, readings = await _streams(stage)
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
    await _all_undisturbed(stage, jobs, readings)
    assert waited_s <= 6, f"a call hung for {waited_s:.1f} s"
    assert recovery_s <= RESUME_S, f"served again after {recovery_s:.1f} s"
    return Seen(f"a call gave up after {waited_s:.1f} s; all went on", recovery_s)


async def memory_full(stage: Stage) -> Seen:
    await stage.crew()
    jobs, readings = await _streams(stage)
    await _set(stage.fleet.redis, "maxmemory", "1mb")
    await _refused(stage)
    await _all_undisturbed(stage, jobs, readings)
    await _set(stage.fleet.redis, "maxmemory", "0")
    return await _served(stage, "refused with a typed error while the running jobs finished")


async def disk_full(stage: Stage) -> Seen:
    """A limit to the size of its files makes the server's writes fail as a full disk does."""
    await stage.crew()
    job = await stage.submit(words=300)
    reading = asyncio.create_task(read(stage.fleet, job))
    await stage.running(job)
    _, hard = resource.prlimit(stage.server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(stage.server.pid, resource.RLIMIT_FSIZE, (1, hard))
    await eventually(lambda: _refused(stage), 10)
    resource.prlimit(stage.server.pid, resource.RLIMIT_FSIZE, (hard, hard))
    seen = await _served(stage, "refused with a typed error; all goes on once there is room")
    await undisturbed(job, reading)
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
    jobs, readings = await _streams(stage)
    redis = stage.fleet.redis
    await run(redis, Call(("SCRIPT", "FLUSH"), bool))
    await run(redis, Call(("FUNCTION", "FLUSH"), bool))
    flushed_at = now()
    after = await _submitted_once_there(stage)
    await after.result(timeout=20)
    recovery_s = now() - flushed_at
    await _all_undisturbed(stage, jobs, readings)
    assert recovery_s <= RESUME_S, f"served again after {recovery_s:.1f} s"
    return Seen("loaded again by the scheduler, nothing half written", recovery_s)


async def _submitted_once_there(stage: Stage) -> Job:
    """Who comes in the moment without a library is told so, and nothing is stored."""
    while True:
        try:
            return await stage.submit("after", words=5)
        except LibraryMissing:
            await asyncio.sleep(0)


async def failed_over(stage: Stage) -> Seen:
    """The primary becomes a replica and keeps its connections; the address leads to the new primary."""
    folder = stage.folder / "replica"
    folder.mkdir()
    other = Server(
        valkey_binary(), folder, append_only=True, extra=(*AT_ONCE, "--replicaof", f"127.0.0.1 {stage.server.port}")
    )
    other.start()
    stage.at_the_end(other.stop)
    with other.client() as replica, stage.server.client() as primary:
        await eventually(lambda: _follows(replica), 10)
        proxy = await stage.proxy()
        stage.fleet = await stage.client(proxy.url)
        stage.scheduler(url=proxy.url)
        stage.worker(url=proxy.url)
        await stage.active()
        jobs, readings = await _streams(stage)
        proxy.point_at(other.port)
        run_sync(replica, Call(("REPLICAOF", "NO", "ONE"), bool))
        run_sync(primary, Call(("REPLICAOF", "127.0.0.1", other.port), bool))
        failed_at = now()
        job = await stage.submit("after", words=5)
        await job.result(timeout=20)
        recovery_s = now() - failed_at
        again = await stage.submit("after", words=5)
        await _all_undisturbed(stage, jobs, readings)
    assert not again.created, "the same id became a second job"
    assert recovery_s <= RESUME_S, f"served again after {recovery_s:.1f} s"
    return Seen("all left the old primary by themselves, streams whole", recovery_s)


def _follows(replica: SyncRedis) -> bool:
    return run_sync(replica, Call(("INFO", "replication"), lambda told: bool(told["master_link_status"] == "up")))


async def rewound(stage: Stage) -> Seen:
    """A job was assigned in the two seconds that were lost; it is assigned again under the same number."""
    stage.scheduler()
    passing = stage.worker("w0")
    await stage.active()
    passing.tell()
    await passing.dies()
    job = await stage.submit(words=150)
    kept = await _synced(stage)
    sleeper = stage.worker("w1")
    reading = asyncio.create_task(read(stage.fleet, job))
    first = await stage.running(job)
    sleeper.pause()
    stage.server.kill()
    _cut(stage.folder, kept)
    stage.server.start()
    up_at = now()
    assert (await job.info()).record.state is State.QUEUED, "nothing was lost: the test shows nothing"
    stage.worker("w2")
    second = await stage.running(job)
    recovery_s = now() - up_at
    sleeper.resume()
    assert (second.attempt, second.worker) != (first.attempt, first.worker)
    await undisturbed(job, reading)
    await eventually(lambda: sleeper.says("life_ended"), 10)
    record = (await job.info()).record
    assert (record.attempt, record.worker, record.strikes) == (second.attempt, second.worker, 0)
    same = "the same number" if first.attempt == second.attempt else "another number"
    return Seen(f"two holders under {same}: the one that Redis knows was heard", recovery_s)


async def _synced(stage: Stage) -> dict[Path, int]:
    """The sizes of the append-only files once all that was written stands in them."""
    await run(stage.fleet.redis, Call(("WAITAOF", 1, 0, 2000), list))
    return {path: path.stat().st_size for path in (stage.folder / "appendonlydir").iterdir()}


def _cut(folder: Path, kept: dict[Path, int]) -> None:
    for path, size in kept.items():
        os.truncate(path, size)


async def time_jumps(stage: Stage) -> Seen:
    """All stored times are made an hour older while no dispatcher runs: as at a failover to a server ahead in time."""
    leader, *_ = await stage.crew(2)
    jobs, readings = await _streams(stage, 300)
    lives = {worker.id for worker in await stage.workers()}
    leader.pause()
    with stage.server.client() as client:
        AgingClock(client).advance(HOUR_MS)
    leader.resume()
    jumped_at = now()
    after = await stage.submit("after", words=5)
    await after.result(timeout=20)
    recovery_s = now() - jumped_at
    await _all_undisturbed(stage, jobs, readings)
    assert {worker.id for worker in await stage.workers()} == lives, "workers were given up"
    histories = [(await job.info()).record.history for job in jobs]
    assert histories == [()] * JOBS, "jobs were taken from their workers"
    return Seen("all leases extended: no reclaim, no strikes", recovery_s)


ROWS = (
    Fault("kill -9 of Valkey, and a restart", "all resume within 5 s", killed),
    Fault("kill -9 of Redis 7, and a restart", "all resume within 5 s", killed, server="redis7"),
    Fault("SIGSTOP of Redis, then SIGCONT", "calls time out, nothing hangs; all resume within 5 s", frozen, slow=True),
    Fault("maxmemory is reached", "submits refused, running jobs finish, recovers", memory_full),
    Fault("the disk is full", "submits refused with a typed error, recovers", disk_full),
    Fault("FUNCTION FLUSH and SCRIPT FLUSH", "loaded again, nothing half written", flushed),
    Fault(
        "the primary becomes a READONLY replica",
        "reconnect, find the primary, resubmit by id",
        failed_over,
        extra=AT_ONCE,
    ),
    Fault(
        "a restart from an append-only file cut two seconds back",
        "the worker id decides between two holders, nothing doubled",
        rewound,
    ),
    Fault("the server's clock jumps an hour at failover", "no mass reclaim, no strikes", time_jumps),
)
