"""What one tenant may at most, and when a refused one may try again."""

import pytest

from protocol import functions, keys
from protocol.errors import QueueFull, QuotaExceeded
from protocol.functions import Quotas
from protocol.states import Priority
from tests.support.builders import SHARD, SPEC, a_submission, tick_as
from tests.support.driver import Driver
from tests.support.store_clock import StoreClock

COST = SPEC.cost_tokens
MINUTE_MS = 60_000


def allow(driver: Driver, **quotas: int) -> None:
    driver.run(tick_as(quotas=Quotas(**quotas)))


def test_without_a_quota_a_tenant_may_fill_half_a_lane(driver: Driver) -> None:
    allow(driver)
    for number in range(20):
        driver.submit(str(number))
    assert "spent" not in driver.snapshot().value(keys.tenant(SHARD, "t"))


def test_waiting_jobs_count_in_all_lanes_and_delayed_ones_too(driver: Driver) -> None:
    allow(driver, jobs=3)
    driver.submit("a", priority=Priority.HIGH)
    driver.submit("b", priority=Priority.LOW)
    driver.submit("c", delay_ms=1000)
    with pytest.raises(QuotaExceeded, match="quota of 3 jobs waiting") as refusal:
        driver.submit("d", priority=Priority.MEDIUM)
    assert refusal.value.retry_after_s > 0
    assert isinstance(refusal.value, QueueFull)
    driver.submit("d", tenant="u")
    assert driver.submitted(a_submission("a")).created is False
    driver.cancel("b")
    driver.submit("d", priority=Priority.MEDIUM)


def test_tokens_of_a_minute_are_spent_and_come_back(driver: Driver, store_clock: StoreClock) -> None:
    quota = COST + COST // 2
    allow(driver, tokens=quota)
    driver.submit("a")
    driver.submit("b")
    with pytest.raises(QuotaExceeded, match=f"quota of {quota} tokens a minute") as refusal:
        driver.submit("c")
    assert refusal.value.retry_after_s == pytest.approx(20, abs=2)
    driver.submit("c", tenant="u")
    store_clock.advance(15_000)
    with pytest.raises(QuotaExceeded) as refusal:
        driver.submit("c")
    assert refusal.value.retry_after_s == pytest.approx(5, abs=2)
    store_clock.advance(6_000)
    driver.submit("c")


def test_a_job_larger_than_the_quota_is_taken_and_paid_off(driver: Driver, store_clock: StoreClock) -> None:
    allow(driver, tokens=COST // 10)
    driver.submit("a")
    with pytest.raises(QuotaExceeded) as refusal:
        driver.submit("b")
    assert refusal.value.retry_after_s == pytest.approx(9 * 60, abs=2)
    store_clock.advance(9 * MINUTE_MS + 2_000)
    driver.submit("b")


def test_a_repeat_is_not_counted_twice(driver: Driver) -> None:
    allow(driver, tokens=2 * COST)
    for _ in range(5):
        driver.submit("a")
    driver.submit("b")


def test_a_refused_job_leaves_nothing(driver: Driver) -> None:
    allow(driver, jobs=1)
    driver.submit("a")
    before = driver.snapshot()
    with pytest.raises(QuotaExceeded):
        driver.run(functions.submit(a_submission("b")))
    assert driver.snapshot() == before


def test_a_debt_is_not_forgotten_before_it_is_paid(driver: Driver, store_clock: StoreClock) -> None:
    """Its hash, which an idle tenant's ends with, holds what it has spent."""
    allow(driver, tokens=1)
    driver.submit("a", spec=SPEC.model_copy(update={"prompt_tokens": 600}))
    driver.cancel("a")
    store_clock.advance(2 * 60 * MINUTE_MS)
    with pytest.raises(QuotaExceeded):
        driver.submit("b")
    left_ms = driver.redis.pttl(keys.tenant(SHARD, "t"))
    assert isinstance(left_ms, int)
    assert left_ms > 7 * 60 * MINUTE_MS
