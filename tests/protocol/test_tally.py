"""What the functions count for whoever watches."""

import pytest

from protocol import functions, keys, watch
from protocol.states import State
from tests.support.builders import SHARD
from tests.support.driver import Driver
from tests.support.store_clock import StoreClock

BY_HAND = ("many", "1.5", "9223372036854775807", "")
"""The third is the greatest number that Redis can count to."""


@pytest.mark.parametrize("count", BY_HAND)
def test_a_count_that_a_hand_wrote_breaks_no_end(driver: Driver, count: str) -> None:
    handle, attempt = driver.running()
    driver.redis.hset(keys.clock(SHARD), "n:completed", count)
    assert driver.finish(handle, attempt).accepted
    assert driver.job(handle).state is State.COMPLETED
    assert driver.run(watch.tally(SHARD)).ended[State.COMPLETED] == 1
    driver.check()


@pytest.mark.parametrize("count", BY_HAND)
def test_a_count_that_a_hand_wrote_breaks_no_reclaim(driver: Driver, store_clock: StoreClock, count: str) -> None:
    handle, _ = driver.running()
    for field in ("n:strike", "n:lost"):
        driver.redis.hset(keys.clock(SHARD), field, count)
    driver.tick_after_lease(store_clock)
    told = driver.run(watch.tally(SHARD))
    assert (told.strikes, told.lost) == (1, 1)
    assert driver.job(handle).state is State.QUEUED
    driver.check()


@pytest.mark.parametrize("field", ["q:high", "attempt"])
def test_a_counter_that_is_full_breaks_no_way_back(driver: Driver, field: str) -> None:
    handle, attempt = driver.running()
    driver.redis.hset(keys.clock(SHARD), field, "9223372036854775807")
    assert driver.run(functions.requeue(handle, attempt, "w1", "try")) == "ok"
    assert driver.job(handle).state is State.QUEUED
    driver.restarted(handle)
