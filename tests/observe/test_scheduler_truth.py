"""What a scheduler tells of what seldom happens: it is made to happen, by hand or by workers that are scripted."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from protocol import functions, reads
from protocol.errors import FleetError
from protocol.functions import Fault
from protocol.handle import Handle
from protocol.messages import ModelRecord
from protocol.settings import Settings
from protocol.states import Priority, State
from tests.observe.conftest import Watched
from tests.observe.scraping import Scrape
from tests.observe.truth import BY_HAND
from tests.support.builders import SHARD, SPEC
from tests.support.driver import Driver
from tests.support.waiting import eventually

BEAT_S, LEASE_S, HELD_MS = 5, 60, 40_000
"""A scripted worker beats once and is heard for long. Its lease is shorter than the scheduler's: it may be silent."""
MEMORY = 300 * 2**20
TIMES = {
    "TOKENFLEET_BEAT_S": str(BEAT_S),
    "TOKENFLEET_LEASE_S": str(LEASE_S),
    "TOKENFLEET_TICK_S": "0.1",
    "TOKENFLEET_TARGET_LOW_S": "700",
    "TOKENFLEET_ADMISSION_HIGH": "refuse",
    "TOKENFLEET_SCALE": "off",
}
LOW = Priority.LOW


class Play:
    """A scheduler, and workers whose parts a test plays."""

    def __init__(self, watched: Watched, driver: Driver) -> None:
        self.watched, self.driver = watched, driver

    def told(self) -> Scrape:
        return self.watched.scrape("scheduler")

    async def tells(self, value: float, name: str, **labels: str) -> None:
        """It does so sooner or later, and no more than that."""

        def does() -> bool:
            assert self.told().sum(f"tokenfleet_{name}", **labels) == value, (name, labels)
            return True

        await eventually(does, timeout_s=20)

    def join(self, worker: str = "w1", **report: Any) -> None:
        there = worker in self.driver.run(reads.leases(SHARD))
        self.driver.join(worker, lease_ms=HELD_MS, join=not there, **report)

    def submit(self, name: str, **changes: Any) -> Handle:
        return self.driver.submit(name, **changes).handle

    async def given(self, handle: Handle) -> int:
        """The attempt that the scheduler has made of a job."""

        def assigned() -> int:
            record = self.driver.job(handle)
            return record.attempt if record.state is State.ASSIGNED else 0

        return await eventually(assigned, timeout_s=20)

    async def began(self, handle: Handle, worker: str = "w1") -> int:
        attempt = await self.given(handle)
        assert self.driver.start(handle, attempt, worker)
        return attempt

    async def breaks(self, handle: Handle, fault: Fault) -> str:
        attempt = await self.began(handle)
        return self.driver.run(functions.requeue(handle, attempt, "w1", fault))


@pytest.fixture
async def play(bare: Watched) -> AsyncIterator[Play]:
    bare.start("scheduler", "scheduler", **TIMES)
    await bare.answers("scheduler")
    with bare.server.client() as client:
        driver = Driver(client)

        def registered() -> bool:
            try:
                driver.run(functions.register("m", ModelRecord(pool=SHARD.pool)))
            except FleetError as error:
                raise AssertionError("no library yet") from error
            return True

        await eventually(registered, timeout_s=20)
        yield Play(bare, driver)


async def test_what_seldom_happens_is_told(play: Play) -> None:
    # What Redis has counted is read each five seconds: so each part changes all that it can before it asks.
    waiting = await waits_without_a_worker(play)
    await breaks_under_its_engine(play, waiting)
    await is_refused(play)
    await falls_silent(play)
    await breaks_off(play)
    asked = play.watched.asked
    assert asked >= BY_HAND, BY_HAND - asked


async def waits_without_a_worker(play: Play) -> list[Handle]:
    client = play.driver.redis
    client.config_set("maxmemory", str(MEMORY))
    client.config_set("appendonly", "yes")
    jobs = [play.submit(name, priority=LOW) for name in ("old", "older")]
    await play.tells(2, "lane_jobs", priority="low")
    await play.tells(MEMORY, "redis_memory_limit_bytes")
    await play.tells(1, "redis_append_only")
    await play.tells(1, "redis_append_only_ok")
    used = client.info("memory")["used_memory"]  # type: ignore[index]  # redis-py 5: as if it were a coroutine
    assert play.told().sum("tokenfleet_redis_memory_bytes") == pytest.approx(used, rel=0.2)
    settings = Settings(target_low_s=700)
    targets = dict(zip(Priority, (settings.target_high_s, settings.target_medium_s, 700), strict=True))
    for priority, target_s in targets.items():
        assert play.told().sum("tokenfleet_lane_target_seconds", priority=priority) == target_s
    assert play.told().sum("tokenfleet_scheduler_info", policy=settings.policy) == 1
    submitted_ms = min(play.driver.job(job).submitted_ms for job in jobs)

    def waits() -> float:
        before_ms = play.driver.run(reads.store_time_ms())
        oldest_s = play.told().sum("tokenfleet_lane_oldest_seconds", priority="low")
        after_ms = play.driver.run(reads.store_time_ms())
        # It knows Redis's time from its last round, and adds what has gone by since.
        assert (before_ms - submitted_ms) / 1000 - 0.1 <= oldest_s <= (after_ms - submitted_ms) / 1000 + 0.1
        return oldest_s

    await eventually(lambda: waits() > 1, timeout_s=20)
    assert play.told().sum("tokenfleet_lane_oldest_seconds", priority="high") == 0
    return jobs


async def breaks_under_its_engine(play: Play, waiting: list[Handle]) -> None:
    for job in waiting:
        play.driver.run(functions.cancel(job))
    play.join(kv_total_tokens=1_000)
    tried = play.submit("tried")
    assert await play.breaks(tried, "try") == "ok"
    assert play.driver.finish(tried, await play.began(tried)).accepted
    deadly = play.submit("deadly")
    assert [await play.breaks(deadly, "strike") for _ in range(3)] == ["ok", "ok", "dead"]
    vast = play.submit("vast", priority=LOW, spec=SPEC.model_copy(update={"prompt_tokens": 5_000}))
    await play.tells(3, "strikes_total")
    ends = {"cancelled": 2, "completed": 1, "failed": 1}
    for state, count in ends.items():
        await play.tells(count, "jobs_ended_total", state=state)
    for name in ("failed_tries_total", "set_aside_total", "dead_letters"):
        await play.tells(1, name)
    await play.tells(0, "lane_oldest_seconds", priority="low")
    await play.tells(1, "workers", state="active")
    await play.tells(1, "delayed_jobs", priority="low")
    # It is looked at again each five seconds.
    assert play.told().sum("tokenfleet_scheduler_parked_total", reason="too_large") >= 1
    play.driver.run(functions.cancel(vast))


async def is_refused(play: Play) -> None:
    # All of its streams are too slow already.
    play.join(slow_share=1.0, running=1, capacity=4)
    late = play.submit("late")
    await play.tells(1, "scheduler_refusals_total", priority="high")
    record = play.driver.job(late)
    assert (record.state, record.error) == (State.FAILED, "unreachable")


async def falls_silent(play: Play) -> None:
    play.join()
    held = play.submit("taken")
    first = await play.given(held)
    # It gets nothing more: it does not fall silent by itself, so the scheduler can't know that it did.
    play.join(state="draining")
    play.join("w2")
    play.driver.redis.hset("tf:{pool.0}:worker:w1", "at", "1")

    def elsewhere() -> int:
        record = play.driver.job(held)
        return record.attempt if record.state is State.ASSIGNED and record.attempt > first else 0

    assert play.driver.start(held, await eventually(elsewhere, timeout_s=20), "w2")
    play.driver.redis.zadd("tf:{pool.0}:workers", {"w2": 1})
    await play.tells(1, "jobs_taken_back_total")
    await play.tells(1, "leases_lost_total")
    await play.tells(4, "strikes_total")


async def breaks_off(play: Play) -> None:
    log = play.watched.folder / "scheduler.log"
    assert play.told().sum("tokenfleet_scheduler_failed_rounds_total") == 0
    play.driver.redis.function_flush()

    def counted() -> bool:
        broken = log.read_text().count("library_missing")
        assert play.told().sum("tokenfleet_scheduler_failed_rounds_total") == broken > 0
        return True

    await eventually(counted, timeout_s=20)
