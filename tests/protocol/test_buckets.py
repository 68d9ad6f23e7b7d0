"""What an API key has of its limits: a submit takes it as a whole or not at all, and time lets it fade."""

import pytest

from protocol.allowance import Allowance, Meter
from protocol.errors import QuotaExceeded, RateLimited, TooLarge
from protocol.functions import Quotas
from protocol.limits import Bucket, Limits
from tests.protocol.limited import COST, MINUTE_MS, NAME, WIDE, left, limited
from tests.support.builders import BODY, a_submission, tick_as
from tests.support.driver import Driver
from tests.support.store_clock import StoreClock

HOUR_MS = 60 * MINUTE_MS
TIGHT = {
    "requests": (Limits(requests_a_minute=2), 30),
    "tokens": (Limits(tokens_a_minute=2 * COST + COST // 2), 12),
    "jobs": (Limits(jobs=2), 1),
    "bytes": (Limits(bytes=2 * len(BODY) + 1), 1),
}
"""Each takes two jobs; and when it takes a third at the earliest, in seconds."""


@pytest.mark.parametrize("kind", TIGHT)
def test_each_limit_refuses_by_itself_and_takes_nothing(driver: Driver, kind: str) -> None:
    limits, wait_s = TIGHT[kind]
    for own_id in ("a", "b"):
        assert driver.submitted(limited(own_id, limits)).created
    before = driver.snapshot()
    with pytest.raises(RateLimited, match="this key's limit of") as refusal:
        driver.submitted(limited("c", limits))
    assert driver.snapshot() == before
    assert refusal.value.kind == kind
    assert refusal.value.limit == max(limits.model_dump().values())
    assert refusal.value.remaining < refusal.value.limit / 2
    assert refusal.value.retry_after_s == pytest.approx(wait_s, abs=1)


def test_a_refused_submit_is_taken_when_it_was_told_to_come(driver: Driver, store_clock: StoreClock) -> None:
    for kind in ("requests", "tokens"):
        limits, wait_s = TIGHT[kind]
        jobs = [a_submission(f"{kind}-{number}", bucket=Bucket(kind, limits)) for number in range(3)]
        driver.submitted(jobs[0])
        driver.submitted(jobs[1])
        store_clock.advance(wait_s * 1000 - 2_000)
        with pytest.raises(RateLimited) as refusal:
            driver.submitted(jobs[2])
        store_clock.advance(int(refusal.value.retry_after_s * 1000))
        assert driver.submitted(jobs[2]).created


def test_what_one_limit_refuses_no_other_takes(driver: Driver) -> None:
    limits = WIDE.model_copy(update={"jobs": 1})
    driver.submitted(limited("a", limits))
    for _ in range(200):
        with pytest.raises(RateLimited):
            driver.submitted(limited("b", limits))
    assert left(driver)["requests"] <= 1
    assert left(driver)["tokens"] <= COST


def test_the_limit_is_named_that_takes_longest(driver: Driver) -> None:
    limits = Limits(requests_a_minute=1, tokens_a_minute=COST + COST // 2, jobs=1)
    driver.submitted(limited("a", limits))
    with pytest.raises(RateLimited) as refusal:
        driver.submitted(limited("b", limits))
    assert refusal.value.kind == "requests"
    assert refusal.value.retry_after_s == pytest.approx(60, abs=1)


def test_a_job_that_never_fits_is_too_large(driver: Driver) -> None:
    """Coming again later would help nobody."""
    with pytest.raises(TooLarge, match=f"needs {COST} tokens, and this key may use {COST - 1} a minute"):
        driver.submitted(limited("a", Limits(tokens_a_minute=COST - 1)))
    with pytest.raises(TooLarge, match=f"needs {len(BODY)} bytes, and this key may send 3"):
        driver.submitted(limited("a", Limits(bytes=3)))
    assert left(driver) == {"requests": 0, "tokens": 0, "jobs": 0, "bytes": 0}


def test_a_submit_tells_what_is_left(driver: Driver) -> None:
    limits = Limits(requests_a_minute=60, tokens_a_minute=10 * COST)
    told = driver.submitted(limited("a", limits)).allowance
    assert told is not None
    for meter, limit, remaining, reset_s in ((told.requests, 60, 59, 1), (told.tokens, 10 * COST, 9 * COST, 6)):
        assert meter == Meter(limit, remaining, pytest.approx(reset_s, abs=0.01))  # type: ignore[arg-type]  # it equals a float
    assert driver.submitted(limited("b", Limits(jobs=5))).allowance == Allowance()
    assert driver.submitted(a_submission("c")).allowance is None
    with pytest.raises(RateLimited) as refusal:
        driver.submitted(limited("d", Limits(requests_a_minute=60, jobs=1)))
    assert refusal.value.allowance.requests is not None
    assert refusal.value.allowance.requests.limit == 60


def test_without_a_bucket_none_is_made(driver: Driver) -> None:
    handle, attempt = driver.running()
    driver.finish(handle, attempt)
    assert NAME not in driver.snapshot().entries


def test_a_repeated_submit_takes_nothing_and_tells_what_is_left(driver: Driver) -> None:
    driver.submitted(limited("a"))
    before = left(driver)
    for nonce in ("nonce-a", "nonce-a", "other"):
        again = driver.submitted(limited("a", nonce=nonce))
        assert not again.created
        assert again.allowance is not None
        assert again.allowance.requests is not None
        assert again.allowance.requests.remaining == 9
    assert left(driver) == before


def test_a_repeat_is_answered_where_the_limit_is_reached(driver: Driver) -> None:
    driver.submitted(limited("a", Limits(requests_a_minute=1)))
    assert not driver.submitted(limited("a", Limits(requests_a_minute=1))).created


def test_keys_and_tenants_count_apart(driver: Driver) -> None:
    limits = Limits(jobs=1)
    for tenant, key_id in (("t", "k"), ("t", "l"), ("u", "k")):
        job = a_submission(f"{tenant}{key_id}", tenant=tenant, bucket=Bucket(key_id, limits))
        assert driver.submitted(job).created


def test_a_bucket_stays_with_its_jobs_and_then_until_it_is_full_again(driver: Driver, store_clock: StoreClock) -> None:
    limits = Limits(requests_a_minute=2, tokens_a_minute=10 * COST)
    driver.submitted(limited("a", limits))
    assert driver.redis.pttl(NAME) == -1
    driver.cancel("a")
    ttl_ms = driver.redis.pttl(NAME)
    assert ttl_ms == pytest.approx(30_000, abs=1_000)
    driver.submitted(limited("b", limits))
    assert driver.redis.pttl(NAME) == -1
    driver.cancel("b")
    store_clock.advance(61_000)
    assert NAME not in driver.snapshot().entries


def test_a_bucket_is_never_fuller_than_full(driver: Driver, store_clock: StoreClock) -> None:
    """However late tokens are given back, and however far the clock jumps."""
    limits = Limits(requests_a_minute=3, tokens_a_minute=3 * COST)
    for own_id in ("a", "b", "c"):
        driver.submitted(limited(own_id, limits))
    store_clock.advance(HOUR_MS)
    for own_id in ("a", "b", "c"):
        driver.cancel(own_id)
    for own_id in ("d", "e", "f"):
        driver.submitted(limited(own_id, limits))
    with pytest.raises(RateLimited):
        driver.submitted(limited("g", limits))


def test_a_clock_that_goes_back_keeps_nobody_out_for_long(driver: Driver, store_clock: StoreClock) -> None:
    limits = Limits(requests_a_minute=60)
    for number in range(60):
        driver.submitted(limited(str(number), limits))
    store_clock.advance(-HOUR_MS)
    with pytest.raises(RateLimited) as refusal:
        driver.submitted(limited("late", limits))
    assert refusal.value.retry_after_s < 2
    store_clock.advance(1_100)
    assert driver.submitted(limited("late", limits)).created


def test_nor_does_it_keep_a_tenant_at_its_quota_out(driver: Driver, store_clock: StoreClock) -> None:
    driver.run(tick_as(quotas=Quotas(tokens=COST)))
    driver.submit("a")
    store_clock.advance(-HOUR_MS)
    with pytest.raises(QuotaExceeded):
        driver.submit("b")
    store_clock.advance(1_000)
    driver.submit("b")


def test_a_full_lane_takes_nothing_of_a_key(driver: Driver) -> None:
    driver.run(tick_as(quotas=Quotas(jobs=1)))
    driver.submitted(limited("a"))
    before = left(driver)
    with pytest.raises(QuotaExceeded):
        driver.submitted(limited("b"))
    assert left(driver) == before


@pytest.mark.parametrize("kind", ["set", "hset"])
def test_a_bucket_that_was_written_by_hand_blocks_no_job(driver: Driver, kind: str) -> None:
    driver.submitted(limited("a"))
    if kind == "set":
        driver.redis.set(NAME, "by hand", ex=60)
    else:
        driver.redis.hset(
            NAME, mapping={"requests": "nan", "tokens": "-5e300", "jobs": "x", "at": "inf", "bytes": "-1"}
        )
    assert driver.submitted(limited("b")).created
    driver.cancel("a")
    driver.cancel("b")
    assert left(driver)["jobs"] == left(driver)["bytes"] == 0
    assert driver.redis.delete(f"{NAME}:apart") == (kind == "set")
