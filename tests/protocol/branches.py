"""Every branch of every function that writes, for the test that a denied key stops it before its first write."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from redis import Redis

from protocol import functions, keys
from protocol.call import Call
from protocol.errors import NotAllowed
from protocol.functions import Move, TickTimes
from protocol.limits import Bucket, Limits
from protocol.messages import ModelRecord
from tests.support.builders import LEASE_MS, SHARD, a_handle, a_submission, completed, join_worker, tick_as
from tests.support.driver import Driver
from tests.support.snapshot import Snapshot

ROLE, PASSWORD = "role", "role"
HANDLE = a_handle()
_OWN_KEYS = {
    *(keys.body(HANDLE), keys.result(HANDLE), keys.tokens(HANDLE)),
    *(keys.done(SHARD, HANDLE.tenant, "me"), keys.inbox(SHARD, "w1")),
}
PUBLISHING = ("emit", "finish", "cancel", "assign-late", "assign-malformed", "assign-refuse", "tick-expire")
BUCKET = Bucket("k", Limits(requests_a_minute=100, tokens_a_minute=10_000, jobs=10, bytes=1_000_000))
NO_GAP = TickTimes(gap_ms=10**12)


@dataclass(frozen=True)
class Branch:
    """A state, and the call that takes one branch from there."""

    name: str
    prepare: Callable[[Driver], object]
    call: Callable[[Driver], Call[Any]]
    house_keeping: tuple[str, ...] = ()
    """What the call writes before it looks at any job, as numbers drawn for attempts: no part of a move."""

    @property
    def publishes(self) -> bool:
        return self.name.startswith(PUBLISHING) or self.name.endswith("-dead")


def _waiting(driver: Driver, **changes: Any) -> None:
    driver.lead()
    driver.join()
    driver.submit(reply_to="me", **changes)


def _assigned(driver: Driver) -> None:
    _waiting(driver)
    driver.assign(HANDLE)


def _running(driver: Driver, **changes: Any) -> None:
    driver.running(reply_to="me", **changes)


def _streaming(driver: Driver) -> None:
    _running(driver)
    driver.emit(HANDLE, driver.job(HANDLE).attempt, 1)


def _limited(driver: Driver) -> None:
    """The job counts for an API key."""
    _running(driver, bucket=BUCKET)
    driver.emit(HANDLE, driver.job(HANDLE).attempt, 1)


def _two_strikes(driver: Driver) -> None:
    _running(driver)
    for _ in range(2):
        driver.run(functions.requeue(HANDLE, driver.job(HANDLE).attempt, "w1", "strike"))
        attempt = driver.restarted(HANDLE)
    driver.emit(HANDLE, attempt, 1)


def _cancelled(driver: Driver) -> None:
    _waiting(driver)
    driver.cancel()


def _ended(driver: Driver) -> None:
    _streaming(driver)
    driver.finish(HANDLE, driver.job(HANDLE).attempt, frames=1)


def _lapsed(prepare: Callable[[Driver], object]) -> Callable[[Driver], None]:
    def lapse(driver: Driver) -> None:
        prepare(driver)
        driver.redis.zadd(keys.workers(SHARD), {"w1": 1})

    return lapse


def _late(prepare: Callable[[Driver], object], key: Callable[[], str]) -> Callable[[Driver], None]:
    """Makes the job's time come in `key`, and its deadline where that is meant."""

    def turn(driver: Driver) -> None:
        prepare(driver)
        driver.redis.zadd(key(), {HANDLE.ref: 1})
        if key() == keys.deadlines(SHARD):
            driver.redis.hset(keys.job(HANDLE), "deadline", "1")

    return turn


def _due() -> str:
    return keys.due(SHARD)


def _deadlines() -> str:
    return keys.deadlines(SHARD)


def _move(worker: str = "w1", park_ms: int = 0, refuse_ms: int = 0) -> Callable[[Driver], Call[Any]]:
    return lambda driver: functions.assign(SHARD, "boss", [Move(driver.job(HANDLE).member, worker, park_ms, refuse_ms)])


def _requeue(fault: functions.Fault, delay_ms: int = 0) -> Callable[[Driver], Call[Any]]:
    return lambda driver: functions.requeue(HANDLE, driver.job(HANDLE).attempt, "w1", fault, delay_ms)


def _put_off(driver: Driver) -> None:
    _waiting(driver)
    driver.run(functions.assign(SHARD, "boss", [Move(driver.job(HANDLE).member, park_ms=1_000, late=True)]))


def _gone_quiet(driver: Driver) -> None:
    """Its worker's lease is half over, and it was never heard since it began."""
    _assigned(driver)
    worker, half_ms = "w1", LEASE_MS // 2
    driver.redis.zincrby(keys.workers(SHARD), -half_ms, worker)
    driver.redis.hincrby(keys.worker(SHARD, worker), "at", -half_ms)


def _tick(name: str, prepare: Callable[[Driver], object]) -> Branch:
    return Branch(name, prepare, lambda _: tick_as(times=NO_GAP), (keys.leader(SHARD), keys.clock(SHARD)))


def _attempt(driver: Driver) -> int:
    return driver.job(HANDLE).attempt


BRANCHES = [
    Branch("submit", lambda driver: driver.lead(), lambda _: functions.submit(a_submission(reply_to="me"))),
    Branch("submit-delayed", lambda driver: driver.lead(), lambda _: functions.submit(a_submission(delay_ms=1000))),
    Branch("submit-again", _ended, lambda _: functions.submit(a_submission(nonce="new", reply_to="you"))),
    Branch("submit-anew", _cancelled, lambda _: functions.submit(a_submission(nonce="new", reply_to="me"))),
    Branch("assign", _waiting, _move()),
    Branch("assign-late", _late(_waiting, _deadlines), _move(), (keys.clock(SHARD),)),
    Branch("assign-park", _waiting, _move("", 1000)),
    Branch("assign-malformed", _waiting, _move("", 0), (keys.clock(SHARD),)),
    Branch("assign-refuse", _waiting, _move("", 0, 700), (keys.clock(SHARD),)),
    Branch("beat-join", lambda driver: driver.lead(), lambda _: join_worker()),
    Branch("start", _assigned, lambda driver: functions.start(HANDLE, _attempt(driver), "w1")),
    Branch("emit", _running, lambda driver: functions.emit(HANDLE, _attempt(driver), "w1", 1, [{}])),
    Branch("finish", _streaming, lambda driver: functions.finish(completed(HANDLE, _attempt(driver), frames=1))),
    Branch("requeue-now", _running, _requeue("none")),
    Branch("requeue-later", _running, _requeue("try", 1000)),
    Branch("requeue-dead", _two_strikes, _requeue("strike")),
    Branch("cancel-queued", _waiting, lambda _: functions.cancel(HANDLE)),
    Branch("cancel-delayed", lambda driver: _waiting(driver, delay_ms=1000), lambda _: functions.cancel(HANDLE)),
    Branch("cancel-running", _streaming, lambda _: functions.cancel(HANDLE)),
    Branch("leave", _running, lambda _: functions.leave(SHARD, "w1")),
    Branch("register", lambda driver: driver.lead(), lambda _: functions.register("m", ModelRecord(pool="pool"))),
    Branch("command", _running, lambda _: functions.command(SHARD, "w1", "drain")),
    Branch("forget", _ended, lambda driver: functions.forget(HANDLE, _attempt(driver))),
    _tick("tick-ripen", _late(lambda driver: _waiting(driver, delay_ms=1000), _due)),
    Branch(
        "tick-recall", _put_off, lambda _: tick_as(times=NO_GAP, recall=True), (keys.leader(SHARD), keys.clock(SHARD))
    ),
    _tick("tick-expire-queued", _late(_waiting, _deadlines)),
    _tick("tick-expire-running", _late(_streaming, _deadlines)),
    _tick("tick-take-back", _gone_quiet),
    _tick("tick-reclaim-idle", _lapsed(_waiting)),
    _tick("tick-reclaim", _lapsed(_running)),
    _tick("tick-reclaim-dead", _lapsed(_two_strikes)),
    Branch("submit-limited", lambda driver: driver.lead(), lambda _: functions.submit(a_submission(bucket=BUCKET))),
    Branch("emit-limited", _limited, lambda driver: functions.emit(HANDLE, _attempt(driver), "w1", 2, [{}])),
    Branch("finish-limited", _limited, lambda driver: functions.finish(completed(HANDLE, _attempt(driver), frames=1))),
    Branch("cancel-limited", _limited, lambda _: functions.cancel(HANDLE)),
    _tick("tick-expire-limited", _late(_limited, _deadlines)),
]


def denials(driver: Driver, branch: Branch) -> list[str]:
    """Takes the branch once for each key that it writes, without the right to that key; tells what went wrong."""
    before, named, after = _touched(driver, branch)
    names = before.entries.keys() | after.entries.keys() | _OWN_KEYS | named
    changed = _differences(before, after, branch)
    assert changed, "the branch writes nothing"
    assert list(_denied(driver, branch, names, "&*", "nothing")) == ["without nothing: not denied"]
    problems = [found for key in changed for found in _denied(driver, branch, names - {key}, "&*", key)]
    if branch.publishes:
        problems += _denied(driver, branch, names, "resetchannels", "the channel")
    return problems


def _fresh(driver: Driver, branch: Branch) -> Snapshot:
    driver.redis.flushdb()
    branch.prepare(driver)
    return driver.snapshot()


def _touched(driver: Driver, branch: Branch) -> tuple[Snapshot, set[str], Snapshot]:
    """What there is before, the keys that the call names, and what there is after."""
    before = _fresh(driver, branch)
    call = branch.call(driver)
    driver.run(call)
    return before, {str(key) for key in call.command[3 : 3 + int(call.command[2])]}, driver.snapshot()


def _differences(before: Snapshot, after: Snapshot, branch: Branch) -> list[str]:
    names = (before.entries.keys() | after.entries.keys()) - set(branch.house_keeping)
    return [name for name in sorted(names) if before.entries.get(name) != after.entries.get(name)]


def _denied(driver: Driver, branch: Branch, allowed: set[str], channels: str, what: str) -> Iterator[str]:
    before = _fresh(driver, branch)
    call = branch.call(driver)
    with _as_role(driver, allowed, channels) as role:
        try:
            Driver(role).run(call)
            yield f"without {what}: not denied"
        except NotAllowed:
            changed = _differences(before, driver.snapshot(), branch)
            yield from (f"without {what}: {key} changed all the same" for key in changed)


def _as_role(driver: Driver, allowed: set[str], channels: str) -> Redis:
    patterns = [f"~{key}" for key in sorted(allowed)]
    rules = ("reset", "on", f">{PASSWORD}", "+@all", channels, *patterns)
    driver.redis.execute_command("ACL", "SETUSER", ROLE, *rules)  # type: ignore[no-untyped-call]  # redis-py 5
    port = driver.redis.connection_pool.connection_kwargs["port"]
    return Redis(port=port, username=ROLE, password=PASSWORD, socket_timeout=10)
