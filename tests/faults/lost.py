"""Redis that comes back as another: demoted, behind, or elsewhere in time."""

import asyncio
import os
from functools import partial
from pathlib import Path

from redis import Redis as SyncRedis

from producer.jobs import Job
from protocol import keys
from protocol.call import Call, run, run_sync
from protocol.functions import Move, TickTimes, assign, tick
from protocol.handle import Shard
from protocol.messages import JobRecord
from protocol.states import State
from tests.faults.matrix import Fault, Seen
from tests.faults.stage import MODEL, RESUME_S, Stage, now, read, undisturbed
from tests.faults.stores import JOBS, all_undisturbed, on_both, streams
from tests.support.builders import LIMITS
from tests.support.servers import Server
from tests.support.store_clock import AgingClock
from tests.support.waiting import eventually

HOUR_MS = 3_600_000
AT_ONCE = ("--repl-diskless-sync-delay", "0")


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
        jobs, readings = await streams(stage)
        # What had not reached the replica would be lost; how much that can be is measured elsewhere.
        offset = _offset(primary, "master_repl_offset")
        await eventually(lambda: _offset(replica, "slave_repl_offset") >= offset, 10)
        proxy.point_at(other.port)
        run_sync(replica, Call(("REPLICAOF", "NO", "ONE"), bool))
        run_sync(primary, Call(("REPLICAOF", "127.0.0.1", other.port), bool))
        failed_at = now()
        job = await stage.submit("after", words=5)
        await job.result(timeout=20)
        recovery_s = now() - failed_at
        again = await stage.submit("after", words=5)
        await all_undisturbed(jobs, readings)
    assert not again.created, "the same id became a second job"
    assert recovery_s <= RESUME_S, f"served again after {recovery_s:.1f} s"
    return Seen("all left the old primary by themselves, streams whole", recovery_s)


def _offset(redis: SyncRedis, name: str) -> int:
    return run_sync(redis, Call(("INFO", "replication"), lambda told: int(told[name])))


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
    stage.server.kill(written=True)
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
    jobs, readings = await streams(stage, 300)
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
    await all_undisturbed(jobs, readings)
    assert {worker.id for worker in await stage.workers()} == lives, "workers were given up"
    histories = [(await job.info()).record.history for job in jobs]
    assert histories == [()] * JOBS, "jobs were taken from their workers"
    return Seen("all leases extended: no reclaim, no strikes", recovery_s)


async def _last_tick_ms(stage: Stage) -> int:
    return await run(stage.fleet.redis, Call(("HGET", keys.clock(Shard(MODEL)), "tick"), int))


async def _ticked_after(stage: Stage, ms: int) -> bool:
    return await _last_tick_ms(stage) > ms


ROWS = (
    *on_both(
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
