"""What a scheduler tells Prometheus, by its registry."""

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from structlog.testing import capture_logs

from protocol import store
from protocol.call import Call, run
from protocol.errors import NotAllowed
from protocol.handle import Shard
from protocol.states import Priority, State
from protocol.watch import Store, Tally, WorkerNow
from scheduler import led, shard_loop
from scheduler.led import Look
from scheduler.metrics import STEPS, Metrics
from scheduler.policy.decision import Assignment, Decision, Park, ParkReason
from scheduler.policy.window import Reason
from scheduler.read import Snapshot
from telemetry.serve import new_registry, page
from tests.conftest import Backend
from tests.scheduler.policy.build import HIGH, MEDIUM, NOW_MS, job, lane
from tests.scheduler.stage import LARGE, Stage, a_loop
from tests.support.builders import SHARD
from tests.support.servers import Server
from tests.support.store_clock import StoreClock
from tests.support.waiting import FakeClock, eventually

HERE = {"pool": SHARD.pool, "shard": str(SHARD.number)}
STORE = Store(used_bytes=700, most_bytes=1_000, append_only=True, written=False)
PARKED = "scheduler_parked_total"
NO_TIME = (0.0,) * len(STEPS)


class Told:
    """A registry, its metrics, and what it tells."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry, "predictive", {Priority.HIGH: 0.5})
        self.shard = self.metrics.of(SHARD)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"tokenfleet_{name}", HERE | labels)


def a_look(**depths: int) -> Look:
    waiting = dict.fromkeys(Priority, 5)
    tally = Tally(waiting, dict.fromkeys(State, 2), strikes=3, tries=4, dead=6, lost=7, taken=8)
    return Look({priority: depths.get(priority, 0) for priority in Priority}, 1, tally, STORE)


def a_snapshot(*lanes: object, **workers: str) -> Snapshot:
    now = {name: WorkerNow(name, state, 1, 0, False, 0, None) for name, state in workers.items()}
    return Snapshot(NOW_MS, lanes, more=False, unreadable=(), leases={}, workers=now)  # type: ignore[arg-type]  # lanes of jobs


def test_a_standby_tells_of_no_lane_and_a_leader_of_its_own_only() -> None:
    told = Told()
    assert (told.value("scheduler_leader"), told.value("lane_jobs", priority="high")) == (0, None)
    told.shard.lead_taken()
    # Taken, and not looked at yet; then looked at, and no round yet: half of it would be an alarm.
    assert (told.value("scheduler_leader"), told.value("lane_jobs", priority="high")) == (1, None)
    told.shard.looked(a_look(high=3))
    assert told.value("lane_jobs", priority="high") is None
    told.shard.round(a_snapshot(), Decision(), NO_TIME)
    assert (told.value("lane_jobs", priority="high"), told.value("delayed_jobs", priority="high")) == (3, 2)
    assert [told.value(name) for name in ("dead_letters", "strikes_total", "failed_tries_total")] == [1, 3, 4]
    assert [told.value(f"{name}_total") for name in ("set_aside", "leases_lost", "jobs_taken_back")] == [6, 7, 8]
    of_store = ("memory_bytes", "memory_limit_bytes", "append_only", "append_only_ok")
    assert [told.value(f"redis_{name}") for name in of_store] == [700, 1_000, 1, 0]
    assert told.value("jobs_ended_total", state="completed") == 2
    told.shard.lead_lost()
    assert (told.value("scheduler_leader"), told.value("lane_jobs", priority="high")) == (0, None)
    assert told.value("scheduler_leads_total") == 1


def test_the_oldest_of_a_lane_grows_older_without_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(led, "monotonic", clock.monotonic)
    told = Told()
    told.shard.lead_taken()
    told.shard.looked(a_look())
    oldest = (*lane(MEDIUM, 2, waited=1_000), job("old", MEDIUM, waited=4_000))
    told.shard.round(a_snapshot(oldest, a="active", b="active", c="draining"), Decision(), NO_TIME)
    assert told.value("lane_oldest_seconds", priority="medium") == 4
    assert told.value("lane_oldest_seconds", priority="high") == 0
    clock.advance(2.5)
    assert told.value("lane_oldest_seconds", priority="medium") == 6.5
    assert (told.value("workers", state="active"), told.value("workers", state="draining")) == (2, 1)
    assert told.value("workers", state="unhealthy") == 0


def test_an_oldest_that_has_gone_is_told_no_longer_than_until_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(led, "monotonic", clock.monotonic)
    told = Told()
    told.shard.lead_taken()
    told.shard.looked(a_look())
    for waited, after_s, oldest_s in ((4_000, 0.0, 4), (1_000, led.LANES_S / 2, 4.25), (1_000, led.LANES_S / 2, 1)):
        clock.advance(after_s)
        told.shard.round(a_snapshot(lane(MEDIUM, 2, waited=waited)), Decision(), NO_TIME)
        assert told.value("lane_oldest_seconds", priority="medium") == oldest_s
    # A lane that begins or ends is told at once.
    told.shard.round(a_snapshot(lane(HIGH, 1, waited=500)), Decision(), NO_TIME)
    assert [told.value("lane_oldest_seconds", priority=which) for which in ("high", "medium")] == [0.5, 0]


def test_a_round_is_counted_by_what_it_does() -> None:
    told = Told()
    told.shard.lead_taken()
    given = tuple(Assignment(f"t:{n}", MEDIUM, "w", 1) for n in range(3))
    # A lane that is closed and sends nobody has closed no window.
    decision = Decision(
        given, (Park("t:x", HIGH, 1, ParkReason.LATE),), closed={MEDIUM: Reason.QUIET, HIGH: Reason.ROOM}
    )
    told.shard.round(a_snapshot(), decision, (0.1, 0.2, 0.4))
    assert [told.value("scheduler_step_seconds_sum", step=step) for step in STEPS] == [0.1, 0.2, 0.4]
    assert told.value("scheduler_parked_total", reason="late") == 1
    assert told.value("scheduler_windows_closed_total", priority="medium", reason="quiet") == 1
    assert told.value("scheduler_windows_closed_total", priority="high", reason="room") == 0
    assert told.value("scheduler_window_jobs_sum", priority="medium") == 3


def test_a_job_that_had_run_before_is_a_retry_and_no_wait() -> None:
    told = Told()
    told.shard.assigned([job("a", waited=250), job("b", waited=9_000, begun=True)], NOW_MS)
    told.shard.refused(job("c"))
    told.shard.failed()
    counted = ("assignments_total", "retries_total", "wait_seconds_count", "wait_seconds_sum", "refusals_total")
    assert [told.value(f"scheduler_{name}", priority="high") for name in counted] == [2, 1, 1, 0.25, 1]
    assert told.value("scheduler_failed_rounds_total") == 1


def test_a_leader_that_redis_does_not_hear_tells_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(led, "monotonic", clock.monotonic)
    told = Told()

    def all_is_well() -> None:
        told.shard.lead_kept()
        told.shard.looked(a_look(high=3))
        told.shard.round(a_snapshot((*lane(HIGH, 3, waited=1_000),)), Decision(), NO_TIME)

    def tells() -> tuple[float | None, bool, bool]:
        names = ("lane_jobs", "lane_oldest_seconds")
        return told.value("scheduler_leader"), *(told.value(name, priority="high") is not None for name in names)  # type: ignore[return-value]  # two of them

    told.shard.lead_taken()
    all_is_well()
    clock.advance(led.FRESH_S)
    assert tells() == (1, True, True)
    clock.advance(0.1)
    assert tells() == (0, False, False)
    # Only the looks fail, then only the rounds: half of it is no answer.
    told.shard.lead_kept()
    told.shard.round(a_snapshot(), Decision(), NO_TIME)
    assert tells() == (1, False, False)
    all_is_well()
    assert tells() == (1, True, True)
    clock.advance(led.FRESH_S + 0.1)
    told.shard.lead_kept()
    told.shard.looked(a_look())
    assert tells() == (1, False, False)


async def test_a_leader_that_is_cut_off_leads_no_more(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(led, "FRESH_S", 0.5)
    told = Told()
    redis = store.connect(server.url)
    async with a_loop(redis, metrics=told.metrics):
        await eventually(lambda: told.value("lane_jobs", priority="high") is not None)
        assert told.value("scheduler_leader") == 1
        server.kill()
        await eventually(lambda: told.value("scheduler_leader") == 0)
        assert told.value("lane_jobs", priority="high") is None
        assert told.value("redis_append_only") is None
        server.start()
        await eventually(lambda: told.value("scheduler_leader") == 1)
    await redis.aclose()


def test_the_series_of_a_shard_that_is_gone_are_gone() -> None:
    registry = new_registry()
    metrics = Metrics(registry, "predictive", {})
    metrics.of(SHARD)
    before = page(registry)
    kept = metrics.of(Shard(SHARD.pool, SHARD.number + 1))
    metrics.of(Shard("late", 1)).failed()
    metrics.forget(Shard(SHARD.pool, SHARD.number + 1))
    metrics.forget(Shard("late", 1))
    assert _of_ours(page(registry)) == _of_ours(before)
    assert metrics.of(Shard(SHARD.pool, SHARD.number + 1)) is not kept


def _of_ours(page: bytes) -> list[bytes]:
    return [line for line in page.splitlines() if line.startswith(b"tokenfleet_")]


async def test_a_leader_counts_what_waits(redis: Redis, stage: Stage) -> None:
    told = Told()
    for number in range(3):
        await stage.submit(f"job-{number}")
    async with a_loop(redis, metrics=told.metrics) as loop:
        await eventually(lambda: told.value("lane_jobs", priority="high") == 3)
        assert (told.value("lane_oldest_seconds", priority="high") or 0) > 0
        await loop.loop.resign()
    assert told.value("lane_jobs", priority="high") is None


async def test_what_may_not_be_counted_stops_no_dispatch(
    redis: Redis, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> Look:
        raise NotAllowed("no")

    monkeypatch.setattr(shard_loop, "look", refuse)
    told = Told()
    await stage.join("w1")
    async with a_loop(redis, metrics=told.metrics):
        handle = await stage.submit("a")
        await stage.becomes(handle, State.ASSIGNED)
    assert told.value("scheduler_failed_rounds_total") == 0


async def test_no_look_falls_in_the_moment_between_two_times_of_being_parked(
    redis: Redis, stage: Stage, store_clock: StoreClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks as seldom as a job is parked for long: once in step, it would never count the job as delayed."""
    looks: list[Look] = []

    async def kept(*of: Any) -> Look:
        looks.append(await led.look(*of))
        return looks[-1]

    monkeypatch.setattr(shard_loop, "look", kept)
    monkeypatch.setattr(shard_loop, "LOOK_S", 0.0)
    await stage.join("small", kv_total_tokens=500)
    await stage.submit(spec=LARGE)
    told = Told()
    async with a_loop(redis, metrics=told.metrics):
        for parked in range(1, 4):
            await eventually(lambda parked=parked: told.value(PARKED, reason="too_large") == parked)  # type: ignore[misc]  # bound at once
            store_clock.advance(5_000)
    assert not any(depth for seen in looks for depth in seen.depths.values())


async def test_a_count_that_is_denied_hides_no_other(real_backend: Backend) -> None:
    admin = real_backend.connect()
    rights = ("reset", "on", ">p", "~*", "&*", "+@all", "-xlen")
    await run(admin, Call(("ACL", "SETUSER", "lesser", *rights), bool))
    await admin.aclose()
    lesser = store.connect(real_backend.url.replace("redis://", "redis://lesser:p@"))
    seen = await led.look(lesser, SHARD)
    await lesser.aclose()
    assert (seen.dead, seen.depths[Priority.HIGH], seen.tally.dead) == (None, 0, 0)
    told = Told()
    told.shard.lead_taken()
    told.shard.looked(seen)
    told.shard.round(a_snapshot(), Decision(), NO_TIME)
    assert (told.value("dead_letters"), told.value("lane_jobs", priority="high")) == (None, 0)


@pytest.mark.parametrize("whole", [False, True])
async def test_what_is_denied_is_told_once_a_term(
    redis: Redis, stage: Stage, monkeypatch: pytest.MonkeyPatch, *, whole: bool
) -> None:
    looks = 0

    async def denied(*_: object) -> Look:
        nonlocal looks
        looks += 1
        if whole:
            raise NotAllowed("no")
        return replace(a_look(), dead=None)

    monkeypatch.setattr(shard_loop, "look", denied)
    monkeypatch.setattr(shard_loop, "LOOK_S", 0.0)
    with capture_logs() as lines:
        async with a_loop(redis, metrics=Told().metrics):
            await eventually(lambda: looks >= 3)
    await stage.waiting(0)
    assert [line["log_level"] for line in lines if line["event"] == "count_denied"] == ["warning"]
