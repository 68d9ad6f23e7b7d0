"""Redis that is killed, frozen, full, flushed, demoted, behind or elsewhere in time."""

import asyncio
import os
import resource
from dataclasses import replace
from functools import partial
from pathlib import Path

from redis import Redis as SyncRedis
from redis.asyncio import Redis

from producer.jobs import Job
from protocol import keys
from protocol.call import Call, run, run_sync
from protocol.errors import LibraryMissing, StoreFull, StoreUnavailable
from protocol.functions import Move, TickTimes, assign, tick
from protocol.handle import Shard
from protocol.messages import JobRecord
from protocol.states import State
from tests.faults.matrix import Fault, Scenario, Seen
from tests.faults.stage import MODEL, RESUME_S, Reading, Stage, now, read, undisturbed
from tests.support.builders import LIMITS
from tests.support.servers import Server
from tests.support.store_clock import AgingClock
from tests.support.waiting import eventually

HOUR_MS = 3_600_000
JOBS = 6
AT_ONCE = ("--repl-diskless-sync-delay", "0")


async def _streams(stage: Stage, words: int = 200) -> tuple[list[Job], list["asyncio.Task[Reading]"]]:
    """Jobs that have begun to speak, with followers."""
    jobs = [await stage.submit(f"s{n}", words=words) for n in range(JOBS)]
    readings = [asyncio.create_task(read(stage.fleet, job)) for job in jobs]
    for job in jobs:
        await stage.spoken(job)
    states = [(await job.info()).record.state for job in jobs]
    assert State.RUNNING in states, "all of them have ended: the fault would meet none"
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
        stage.binary, folder, append_only=True, extra=(*AT_ONCE, "--replicaof", f"127.0.0.1 {stage.server.port}")
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


async def rewound(stage: Stage, *, stream: bool) -> Seen:
    """A job was assigned in the seconds that were lost. It is assigned anew under the same number, to another."""
    # It sleeps before it sends its finish, and is gone once that is answered.
    sleeper = stage.worker("w1", failpoints="worker.before_finish=stop,worker.after_finish=exit", speed=4)
    await stage.active()
    job = await stage.submit(words=300, stream=stream)
    kept = await _synced(stage)
    leader = stage.scheduler()
    reading = asyncio.create_task(read(stage.fleet, job))
    await eventually(lambda: sleeper.says("failpoint_reached"), 10)
    first = (await job.info()).record
    leader.kill()
    stage.server.kill()
    for path, size in kept.items():
        os.truncate(path, size)
    stage.server.start()
    up_at = now()
    lost = (await job.info()).record
    assert (lost.state, lost.attempt) == (State.QUEUED, 0), "nothing was lost: the test shows nothing"
    second = await _assigned_to(stage, "w2", job)
    recovery_s = now() - up_at
    assert (second.attempt, second.worker) != (first.attempt, first.worker)
    assert second.attempt == first.attempt, "the numbers differ: the test shows nothing"
    sleeper.resume()
    await sleeper.dies()
    still = (await job.info()).record
    assert (still.state, still.worker) == (State.RUNNING, second.worker), "the other holder's finish was taken"
    await undisturbed(job, reading)
    assert (await job.info()).record.worker == second.worker
    return Seen("two holders of one number, both with a lease: only the one that Redis knows was heard", recovery_s)


async def _assigned_to(stage: Stage, label: str, job: Job) -> JobRecord:
    """As a dispatcher: renew all leases, then choose this worker, which starts here."""
    redis, shard = stage.fleet.redis, Shard(MODEL)
    stage.worker(label)
    await stage.active(2)
    times = TickTimes(lease_ms=10_000, gap_ms=0)

    async def leads() -> bool:
        return (await run(redis, tick(shard, label, times, LIMITS))).leads

    await eventually(leads, 5)
    (worker,) = [worker.id for worker in await stage.workers() if worker.label == label]
    await run(redis, assign(shard, label, [Move((await job.info()).record.member, worker)]))

    async def runs() -> JobRecord | None:
        record = (await job.info()).record
        return record if record.state is State.RUNNING else None

    return await eventually(runs, 10) or (await job.info()).record


async def _synced(stage: Stage) -> dict[Path, int]:
    """The sizes of the append-only files once all that was written stands in them."""
    await run(stage.fleet.redis, Call(("WAITAOF", 1, 0, 2000), list))
    return {path: path.stat().st_size for path in (stage.folder / "appendonlydir").iterdir()}


async def time_jumps(stage: Stage) -> Seen:
    """All stored times are made an hour older while no dispatcher runs: as at a failover to a server ahead in time."""
    leader, *workers = await stage.crew(2)
    jobs, readings = await _streams(stage, 300)
    lives = {worker.id for worker in await stage.workers()}
    for role in stage.roles:
        role.pause()
    with stage.server.client() as client:
        AgingClock(client).advance(HOUR_MS)
    ticked_ms = await _last_tick_ms(stage)
    leader.resume()
    jumped_at = now()
    # The dispatcher looks before any worker has beaten.
    await eventually(lambda: _ticked_after(stage, ticked_ms), 10)
    for worker in workers:
        worker.resume()
    after = await stage.submit("after", words=5)
    await after.result(timeout=20)
    recovery_s = now() - jumped_at
    await _all_undisturbed(stage, jobs, readings)
    assert {worker.id for worker in await stage.workers()} == lives, "workers were given up"
    histories = [(await job.info()).record.history for job in jobs]
    assert histories == [()] * JOBS, "jobs were taken from their workers"
    return Seen("all leases extended: no reclaim, no strikes", recovery_s)


def _on_both(name: str, expected: str, scenario: Scenario, extra: tuple[str, ...] = ()) -> tuple[Fault, Fault]:
    """On Valkey, and on Redis 7 where there is time for it."""
    plain = Fault(name, expected, scenario, extra=extra)
    return plain, replace(plain, name=f"{name} (Redis 7)", server="redis7", slow=True)


async def _last_tick_ms(stage: Stage) -> int:
    return await run(stage.fleet.redis, Call(("HGET", keys.clock(Shard(MODEL)), "tick"), int))


async def _ticked_after(stage: Stage, ms: int) -> bool:
    return await _last_tick_ms(stage) > ms


ROWS = (
    Fault("kill -9 of Valkey, and a restart", "all resume within 5 s", killed),
    Fault("kill -9 of Redis 7, and a restart", "all resume within 5 s", killed, server="redis7"),
    Fault("SIGSTOP of Redis, then SIGCONT", "calls time out, nothing hangs; all resume within 5 s", frozen, slow=True),
    *_on_both("maxmemory is reached", "submits refused, running jobs finish, recovers", memory_full),
    *_on_both("the disk is full", "submits refused with a typed error, recovers", disk_full),
    *_on_both("FUNCTION FLUSH and SCRIPT FLUSH", "loaded again, nothing half written", flushed),
    *_on_both(
        "the primary becomes a READONLY replica",
        "reconnect, find the primary, resubmit by id",
        failed_over,
        extra=AT_ONCE,
    ),
    Fault(
        "a restart from an append-only file cut two seconds back",
        "the worker id decides between two holders, nothing doubled",
        partial(rewound, stream=False),
    ),
    Fault(
        "a restart from an append-only file cut two seconds back, in a stream",
        "the worker id decides between two holders, nothing doubled",
        partial(rewound, stream=True),
        slow=True,
    ),
    Fault("the server's clock jumps an hour at failover", "no mass reclaim, no strikes", time_jumps),
)
