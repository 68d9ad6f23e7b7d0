"""Everything that each role does in Redis: the branches of its functions, and its reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol import access, api_keys, batch_reads, durability, functions, keys, outlook, overview_reads, reads, watch
from protocol.access import Role
from protocol.batches import BatchChange, BatchName, BatchSpec, BatchStatus
from protocol.call import Call
from protocol.functions import BatchLease, Beat
from protocol.messages import LoadReport
from protocol.outlook import Outlook
from protocol.states import Priority
from tests.protocol import branches
from tests.protocol.branches import BRANCHES, HANDLE
from tests.support.builders import BOSS, LEASE_MS, SHARD, a_submission, completed, tick_as
from tests.support.driver import Driver

Calls = Callable[[Driver], Sequence[Call[Any]]]
ORPHAN = f"{1:016d}:{HANDLE.ref}"
"""A lane's entry of a job that is not there."""
BATCH = BatchName("t", "batch_1")
BATCH_SPEC = BatchSpec(input_file_id="file-1", endpoint="/v1/completions")
MY_LEASE = BatchLease(BATCH, "me", 1_000)
PLACE = "*.w1"
"""How a worker's user is kept to its keys; the worker of the branches is called `w1` alone."""


@dataclass(frozen=True)
class Duty:
    """A state, and what a role does in it."""

    name: str
    prepare: Callable[[Driver], object]
    calls: Calls


def roles() -> dict[str, Role]:
    """As a fleet has them, for the tenant and the worker of the branches."""
    worker = access.worker("w1")
    own = replace(worker, grants=[grant.replace(PLACE, "w1") for grant in worker.grants])
    made = access.users(["t"], [])
    as_producer = {*access.producer(access.ANY_TENANT).grants} - {*made["metrics"].grants}
    beside = [grant for grant in made["gateway"].grants if grant not in as_producer]
    gateway = replace(made["gateway"], grants=beside)
    found = {name: made[name] for name in ("producer-t", "subscriber-t", "scheduler", "metrics", "runner")}
    return found | {"worker": own, "gateway beside a producer": gateway}


def dead(driver: Driver) -> None:
    branches._two_strikes(driver)
    driver.run(functions.requeue(HANDLE, driver.job(HANDLE).attempt, "w1", "strike"))


def _ended(driver: Driver) -> None:
    branches._ended(driver)


def _waiting(driver: Driver) -> None:
    branches._waiting(driver)


def _reads_of_a_job(_: Driver) -> list[Call[Any]]:
    return [reads.standing(HANDLE), reads.job_record(HANDLE), reads.log_after(HANDLE, (0, 0)), reads.outcome(HANDLE)]


def _reads_of_a_producer(driver: Driver) -> list[Call[Any]]:
    found: list[Call[Any]] = [
        reads.lane_place(HANDLE, driver.job(HANDLE)),
        reads.dead_mark(HANDLE),
        reads.stored_body(HANDLE),
    ]
    shown: list[Call[Any]] = [reads.models(), reads.leases(SHARD), reads.worker_record(SHARD, "w1")]
    return [*found, *shown, reads.done_after([SHARD], "t", "me", ["0"], 1)]


def _forget_notice(driver: Driver) -> list[Call[Any]]:
    (notice,) = driver.run(reads.done_after([SHARD], "t", "me", ["0"], 1))
    return [functions.forget_notice("me", notice)]


def _reads_of_a_scheduler(_: Driver) -> list[Call[Any]]:
    shard, ref = SHARD, HANDLE.ref
    found: list[Call[Any]] = [watch.hint(shard, 1), watch.worker_now(shard, "w1"), watch.prefixes(shard, "w1")]
    found += [call for lane in Priority for call in (watch.lane_members(shard, lane, 1), reads.lane_depth(shard, lane))]
    found += [reads.dead_count(shard), watch.tally(shard), watch.store(), functions.wake(shard, BOSS)]
    ahead = outlook.publish(shard, Outlook(at_ms=1, policy="p", workers_wanted=1))
    return [*found, reads.models(), reads.leases(shard), reads.waiting_job(shard, ref), ahead]


def _status(_: Driver) -> list[Call[Any]]:
    shard, ref = SHARD, HANDLE.ref
    found: list[Call[Any]] = [reads.store_time_ms(), reads.models(), reads.due_count(shard), reads.dead_count(shard)]
    found += [watch.lane_members(shard, Priority.HIGH, 1), reads.lane_depth(shard, Priority.HIGH)]
    found += [reads.waiting_job(shard, ref), outlook.published(shard), reads.leases(shard)]
    return [*found, reads.worker_record(shard, "w1")]


def _overview(_: Driver) -> list[Call[Any]]:
    """What live views read beside that."""
    found: list[Call[Any]] = [overview_reads.is_led(SHARD), overview_reads.held_jobs(SHARD, "w1", 1)]
    found += [
        overview_reads.standby_ms(SHARD),
        overview_reads.waits_since_ms(HANDLE),
        overview_reads.running_batches(1),
    ]
    return [*_status(_), *found, batch_reads.batch_record(BATCH)]


def _beats(_: Driver) -> list[Call[Any]]:
    """With an acknowledgement, and prefixes that come and go."""
    message = Beat("w1", "w1", "active", 4, LEASE_MS, LoadReport(), added=["b"], removed=["a"], acknowledged=["1-1"])
    return [functions.beat(SHARD, message)]


def _no_hint(prepare: Callable[[Driver], object]) -> Callable[[Driver], None]:
    """The dispatcher has seen the last hint."""

    def look(driver: Driver) -> None:
        prepare(driver)
        driver.redis.delete(keys.events(SHARD))

    return look


def _branches(*starts: str) -> list[Duty]:
    def one(call: Callable[[Driver], Call[Any]]) -> Calls:
        return lambda driver: [call(driver)]

    return [
        Duty(branch.name, _no_hint(branch.prepare), one(branch.call))
        for branch in BRANCHES
        if branch.name.startswith(starts)
    ]


def _said_before(driver: Driver) -> None:
    """An attempt that goes on with what another has said."""
    branches._streaming(driver)
    driver.run(functions.requeue(HANDLE, driver.job(HANDLE).attempt, "w1", "none"))
    driver.assign(HANDLE)


def _goes_on(driver: Driver) -> list[Call[Any]]:
    attempt = driver.job(HANDLE).attempt
    after = functions.emit(HANDLE, attempt, "w1", 2, [{}], after=(attempt - 1, 1))
    return [functions.start(HANDLE, attempt, "w1"), after]


def _long_lead(driver: Driver) -> None:
    """Another has the lead for longer than a gap may last."""
    driver.redis.set(keys.leader(SHARD), "other", px=10**9)


def _stray(key: str) -> Callable[[Driver], None]:
    """An entry that no job belongs to, beside a body and a result that nobody ends."""

    def prepare(driver: Driver) -> None:
        driver.lead()
        driver.redis.zadd(key, {ORPHAN if key.endswith("lane:high") else HANDLE.ref: 1})
        for name in (keys.body(HANDLE), keys.result(HANDLE)):
            driver.redis.set(name, "by hand")

    return prepare


def _durable(_: Driver) -> list[Call[Any]]:
    return [durability.safety(), *durability.Barrier(synced=False, replicas=1, timeout_ms=1).calls()]


def _inbox(_: Driver) -> list[Call[Any]]:
    return [reads.inbox_after(SHARD, "w1", "0", 1), reads.followers([HANDLE])]


def _no_batch(_: Driver) -> None:
    """Nothing is there."""


def _a_batch(driver: Driver) -> None:
    driver.run(functions.batch_create(BATCH, BATCH_SPEC))


def _my_batch(driver: Driver) -> None:
    _a_batch(driver)
    driver.run(functions.batch_take(BATCH, MY_LEASE.token, MY_LEASE.lease_ms))


def _an_ended_batch(driver: Driver) -> None:
    _my_batch(driver)
    driver.run(_write(BatchStatus.FAILED))


def _asks_of_a_gateway(_: Driver) -> list[Call[Any]]:
    found: list[Call[Any]] = [api_keys.find("a"), api_keys.count(), reads.followers([HANDLE])]
    return [*found, reads.dead_entries(SHARD, 1)]


DUTIES: dict[str, list[Duty]] = {
    "producer-t": [
        *_branches("submit", "cancel", "forget"),
        Duty("submit-dead", dead, lambda _: [functions.submit(a_submission(nonce="new", reply_to="me"))]),
        Duty("cancel-two-strikes", branches._two_strikes, lambda _: [functions.cancel(HANDLE)]),
        Duty("reads", _waiting, _reads_of_a_job),
        Duty("more reads", _waiting, _reads_of_a_producer),
        Duty("forget-notice", _ended, _forget_notice),
        Duty("durable", _waiting, _durable),
    ],
    "subscriber-t": [Duty("reads", _ended, _reads_of_a_job)],
    "worker": [
        *_branches("beat", "start", "emit", "finish", "requeue", "leave", "register"),
        Duty("beats", branches._running, _beats),
        Duty("inbox", branches._assigned, _inbox),
        Duty("goes-on", _said_before, _goes_on),
        Duty("finish-two-strikes", branches._two_strikes, lambda driver: [_ending(driver)]),
    ],
    "scheduler": [
        *_branches("assign", "tick", "command"),
        Duty("assign-orphan", _stray(keys.lane(SHARD, Priority.HIGH)), lambda _: [_assign_orphan()]),
        Duty("tick-orphan-due", _stray(keys.due(SHARD)), lambda _: [tick_as()]),
        Duty("tick-orphan-deadlines", _stray(keys.deadlines(SHARD)), lambda _: [tick_as()]),
        Duty("tick-long-lead", _long_lead, lambda _: [tick_as()]),
        Duty("reads", _waiting, _reads_of_a_scheduler),
    ],
    "metrics": [Duty("status", _waiting, _overview)],
    "runner": [],
    "gateway beside a producer": [Duty("keys", _waiting, _asks_of_a_gateway), Duty("page", _waiting, _overview)],
}
DUTIES["producer-t"] += [
    Duty("batches", _no_batch, lambda _: [functions.batch_create(BATCH, BATCH_SPEC), *_reads_of_batches()]),
    Duty("cancel-batch", _a_batch, lambda _: [functions.batch_cancel(BATCH)]),
    Duty("drop-batch", _an_ended_batch, lambda _: [functions.batch_drop(BATCH)]),
]
DUTIES["runner"] += [
    *DUTIES["producer-t"],
    Duty("takes-a-batch", _a_batch, lambda _: [functions.batch_take(BATCH, "me", 1_000)]),
    Duty("runs-a-batch", _my_batch, lambda _: _run_of_a_batch()),
    Duty("ends-a-batch", _my_batch, lambda _: _end_of_a_batch()),
    Duty("hands-over", _my_batch, lambda _: [functions.batch_release(MY_LEASE)]),
    Duty("chores", _an_ended_batch, lambda _: _chores()),
    Duty("arq", _no_batch, lambda _: _arq()),
]


def _reads_of_batches() -> list[Call[Any]]:
    looks = (batch_reads.batch_record(BATCH), batch_reads.batch_place(BATCH), batch_reads.runner_lives())
    listed = batch_reads.batch_ids("t", 1)
    return [*looks, batch_reads.batch_input(BATCH), listed, batch_reads.strike(listed, [b"x"])]


def _write(status: BatchStatus | None = None, keep_ms: int = 1_000) -> Call[Any]:
    return functions.batch_write(MY_LEASE, BatchChange(status), keep_ms, notify=True)


def _looks_at_batches() -> list[Call[Any]]:
    listed = (batch_reads.living_batches(), batch_reads.idle_batches(1), batch_reads.endless_batches())
    return [*listed, batch_reads.batch_status(BATCH)]


def _run_of_a_batch() -> list[Call[Any]]:
    return [_write(), _write(BatchStatus.IN_PROGRESS), *_looks_at_batches()]


def _end_of_a_batch() -> list[Call[Any]]:
    return [_write(BatchStatus.FAILED)]


def _chores() -> list[Call[Any]]:
    gone = batch_reads.put_away(BATCH)
    untold = (batch_reads.untold(BATCH), batch_reads.told(BATCH))
    used = (batch_reads.ended_batches(), batch_reads.batch_input(BATCH))
    return [batch_reads.outdated_batches(1), *used, batch_reads.untold_batches(1), *untold, *gone]


def _arq() -> list[Call[Any]]:
    """The commands that arq gives for a job's life, a cron job's and its own health."""
    queue, job, running, tried = keys.BATCH_RUNS, "arq:job:1", "arq:in-progress:1", "arq:retry:1"
    lines = (
        *("INFO memory", "INFO clients", "INFO server", "DBSIZE", f"PSETEX {queue}:health-check 9 x"),
        *(f"DEL {queue}:health-check", f"WATCH {job}", f"EXISTS {job} arq:result:1", "UNWATCH", "MULTI", "EXEC"),
        *(f"PSETEX {job} 9999 x", f"ZADD {queue} 1 1", f"ZRANGEBYSCORE {queue} -inf 1", f"ZSCORE {queue} 1"),
        *(f"PSETEX {running} 9999 1", f"GET {job}", f"INCRBY {tried} 1", f"EXPIRE {tried} 9", f"PEXPIRE {running} 9"),
        *(f"ZINCRBY {queue} 1 1", f"ZCARD {queue}", "ZREM arq:abort 1", f"ZREM {queue} 1", f"DEL {job} {tried}"),
    )
    return [Call(tuple(line.split()), lambda reply: reply) for line in lines]


def _assign_orphan() -> Call[Any]:
    return functions.assign(SHARD, BOSS, [functions.Move(ORPHAN, "w1", 0)])


def _ending(driver: Driver) -> Call[Any]:
    return functions.finish(completed(HANDLE, driver.job(HANDLE).attempt, frames=1))
