"""The lease guard by a clock that tests turn, and a heartbeat that stops for a stuck loop."""

import asyncio

from redis import Redis
from structlog.testing import capture_logs

from protocol import reads
from protocol.call import run_sync
from protocol.messages import LoadReport
from tests.support.builders import SHARD
from tests.support.waiting import FakeClock, eventually
from worker.heartbeat import STUCK_S, Heartbeat, News, Pace
from worker.life import LeaseGuard, new_life


def test_a_life_has_an_id_that_nobody_had_before() -> None:
    one, other = new_life("w"), new_life("")
    assert one.id != other.id
    assert one.label == "w"
    assert other.label


def test_the_guard_aborts_before_the_lease_ends() -> None:
    clock = FakeClock()
    guard = LeaseGuard(clock, lease_s=10)
    sent_s = clock.monotonic()
    clock.advance(0.5)
    guard.renewed(sent_s)
    clock.advance(8.4)
    assert not guard.over
    clock.advance(0.2)
    assert guard.over


def test_the_guard_counts_from_the_last_beat_that_was_sent() -> None:
    clock = FakeClock()
    guard = LeaseGuard(clock, lease_s=10)
    first_s = clock.monotonic()
    clock.advance(5)
    guard.renewed(clock.monotonic())
    guard.renewed(first_s)
    clock.advance(8)
    assert not guard.over


def test_nothing_can_be_over_before_the_first_lease() -> None:
    clock = FakeClock()
    guard = LeaseGuard(clock, lease_s=10)
    clock.advance(1_000)
    assert not guard.joined
    assert not guard.over


class AskedClock(FakeClock):
    """Counts how often somebody has asked for the time."""

    asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return super().monotonic()


async def test_a_stuck_loop_loses_its_lease(valkey_url: str) -> None:
    clock, life = AskedClock(), new_life("w")
    guard = LeaseGuard(clock, lease_s=10)
    answered = asyncio.Event()
    heartbeat = Heartbeat(valkey_url, SHARD, life, Pace(0.005, 10), clock, guard, lambda _: answered.set())
    with Redis.from_url(valkey_url) as client, capture_logs() as lines:
        heartbeat.publish(News("active", 1, LoadReport()))
        heartbeat.start()
        await asyncio.wait_for(answered.wait(), 5)
        clock.advance(STUCK_S - 1)
        answered.clear()
        await asyncio.wait_for(answered.wait(), 5)
        clock.advance(1)
        await eventually(lambda: any(line["event"] == "event_loop_stuck" for line in lines))
        before = run_sync(client, reads.leases(SHARD))
        asked = clock.asked
        # It goes on looking, renews nothing, and says so once.
        await eventually(lambda: clock.asked > asked + 5)
        assert run_sync(client, reads.leases(SHARD)) == before
        assert [line["event"] for line in lines].count("event_loop_stuck") == 1
        clock.advance(9)
        assert guard.over
    await heartbeat.stop()
