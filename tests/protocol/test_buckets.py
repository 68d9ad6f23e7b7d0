"""What an API key has of its limits: a submit takes it as a whole, the job's end gives it back, time lets it fade."""

from typing import Any

import pytest

from protocol import functions, keys
from protocol.allowance import Allowance, Meter
from protocol.errors import QuotaExceeded, RateLimited, TooLarge
from protocol.functions import Finished, Quotas, Submission
from protocol.handle import Handle
from protocol.limits import Bucket, Limits
from protocol.messages import Outcome
from protocol.states import State
from tests.support.builders import BODY, SHARD, SPEC, a_submission, tick_as
from tests.support.driver import Driver
from tests.support.store_clock import StoreClock

COST, PROMPT = SPEC.cost_tokens, SPEC.prompt_tokens
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
NAME = keys.bucket(SHARD, "t", "k")
WIDE = Limits(requests_a_minute=10, tokens_a_minute=4 * COST, jobs=100, bytes=100 * len(BODY))
TIGHT = {
    "requests": (Limits(requests_a_minute=2), 30),
    "tokens": (Limits(tokens_a_minute=2 * COST + COST // 2), 12),
    "jobs": (Limits(jobs=2), 1),
    "bytes": (Limits(bytes=2 * len(BODY) + 1), 1),
}
"""Each takes two jobs; and when it takes a third at the earliest, in seconds."""


def limited(own_id: str, limits: Limits = WIDE, **changes: Any) -> Submission:
    return a_submission(own_id, bucket=Bucket("k", limits), **changes)


def left(driver: Driver) -> dict[str, float]:
    """The bucket's counts."""
    counts = driver.snapshot().value(NAME, {})
    return {kind: float(counts.get(kind, 0)) for kind in ("requests", "tokens", "jobs", "bytes")}


def spent(driver: Driver, handle: Handle, kind: str, amount: float, limits: Limits = WIDE) -> bool:
    """Whether that much stands in the bucket, but for what has faded since the job was submitted, the first of all."""
    rate = getattr(limits, f"{kind}_a_minute") / MINUTE_MS
    since_ms = driver.job(handle).submitted_ms
    bucket = driver.snapshot().value(NAME)
    return float(bucket[kind]) == pytest.approx(max(0, amount - rate * (int(bucket["at"]) - since_ms)), abs=1e-6)


def runs(driver: Driver, limits: Limits = WIDE, **changes: Any) -> tuple[Handle, int]:
    return driver.running(bucket=Bucket("k", limits), **changes)


def ended(driver: Driver, handle: Handle, attempt: int, outcome: Outcome) -> None:
    assert driver.run(functions.finish(Finished(handle, attempt, "w1", 0, outcome))).accepted


def counted(prompt: int, output: int) -> Outcome:
    usage = {"prompt_tokens": prompt, "completion_tokens": output}
    return Outcome(state=State.COMPLETED, status_code=200, body={"usage": usage})


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


def test_a_new_run_of_an_id_takes_anew(driver: Driver) -> None:
    driver.submitted(limited("a"))
    driver.cancel("a")
    assert driver.submitted(limited("a", nonce="new")).created
    now = left(driver)
    assert 1 < now.pop("requests") <= 2
    assert now == {"tokens": COST, "jobs": 1, "bytes": len(BODY)}


def test_a_retry_and_a_worker_that_leaves_take_nothing(driver: Driver) -> None:
    handle, attempt = runs(driver)
    before = left(driver)
    driver.run(functions.requeue(handle, attempt, "w1", "try"))
    driver.restarted(handle)
    driver.run(functions.leave(SHARD, "w1"))
    assert left(driver) == before


@pytest.mark.parametrize(("prompt", "output"), [(10, 5), (0, 0), (12, 300)])
def test_in_the_end_as_many_tokens_are_taken_as_were_used(driver: Driver, prompt: int, output: int) -> None:
    """More than were estimated, too."""
    handle, attempt = runs(driver)
    ended(driver, handle, attempt, counted(prompt, output))
    assert spent(driver, handle, "tokens", prompt + output)
    assert spent(driver, handle, "requests", 1)
    assert left(driver)["jobs"] == left(driver)["bytes"] == 0


def test_a_finish_that_is_repeated_gives_back_once(driver: Driver) -> None:
    handle, attempt = runs(driver)
    driver.submitted(limited("b"))
    for _ in range(3):
        ended(driver, handle, attempt, counted(10, 5))
    assert left(driver)["jobs"] == 1
    assert spent(driver, handle, "tokens", 15 + COST)


def test_what_an_engine_claims_is_owed_for_ten_minutes_at_most(driver: Driver) -> None:
    handle, attempt = runs(driver, Limits(tokens_a_minute=1000))
    ended(driver, handle, attempt, counted(0, 2**52))
    with pytest.raises(RateLimited) as refusal:
        driver.submitted(limited("b", Limits(tokens_a_minute=1000)))
    assert 9 * 60 < refusal.value.retry_after_s < 10 * 60
    ttl_ms = driver.redis.pttl(NAME)
    assert isinstance(ttl_ms, int)
    assert 9 * MINUTE_MS < ttl_ms <= 10 * MINUTE_MS + 1


def test_what_an_engine_refused_costs_no_tokens(driver: Driver) -> None:
    handle, attempt = runs(driver)
    ended(driver, handle, attempt, Outcome(state=State.FAILED, status_code=400, body={"error": {}}))
    assert left(driver)["tokens"] == 0


def test_an_end_without_usage_costs_what_was_said(driver: Driver) -> None:
    handle, attempt = runs(driver)
    driver.run(functions.emit(handle, attempt, "w1", 1, [{}], tokens=[5, 6, 7]))
    driver.run(functions.emit(handle, attempt, "w1", 2, [{}], tokens=20))
    driver.run(functions.emit(handle, attempt, "w1", 3, [{}]))
    end = Finished(handle, attempt, "w1", 3, Outcome(state=State.FAILED))
    assert driver.run(functions.finish(end)).accepted
    assert spent(driver, handle, "tokens", PROMPT + 24)


def waiting(driver: Driver) -> None:
    driver.lead()
    driver.submitted(limited("a"))


def assigned(driver: Driver) -> None:
    waiting(driver)
    driver.join()
    driver.assign(limited("a").handle)


def delayed(driver: Driver) -> None:
    driver.submitted(limited("a", delay_ms=60_000))


def streaming(driver: Driver) -> None:
    handle, attempt = runs(driver)
    driver.emit(handle, attempt, 1)


def started_again(driver: Driver) -> None:
    """Only what the last attempt said counts: the one before was not the user's fault."""
    handle, attempt = runs(driver)
    driver.run(functions.emit(handle, attempt, "w1", 1, [{}], tokens=50))
    driver.run(functions.requeue(handle, attempt, "w1", "try"))
    driver.emit(handle, driver.restarted(handle), 1)


def unread(driver: Driver) -> None:
    runs(driver, spec=SPEC.model_copy(update={"stream": False}))


@pytest.mark.parametrize(
    ("begin", "used"),
    [
        (waiting, 0),
        (delayed, 0),
        (assigned, 0),
        (streaming, PROMPT + 1),
        (started_again, PROMPT + 1),
        # Nobody reads along: it may have said all of it.
        (unread, COST),
    ],
)
@pytest.mark.parametrize("how", ["cancel", "expire"])
def test_an_early_end_gives_back_what_was_not_used(driver: Driver, begin: Any, used: int, how: str) -> None:
    begin(driver)
    handle = limited("a").handle
    if how == "cancel":
        driver.cancel("a")
    else:
        driver.redis.zadd(keys.deadlines(SHARD), {handle.ref: 1})
        driver.lead()
    assert driver.job(handle).state.terminal
    assert spent(driver, handle, "tokens", used)
    assert spent(driver, handle, "requests", 1)
    assert left(driver)["jobs"] == left(driver)["bytes"] == 0


def test_a_job_that_is_set_aside_and_replayed_by_hand_counts_once(driver: Driver) -> None:
    handle, attempt = runs(driver)
    for _ in range(2):
        driver.run(functions.requeue(handle, attempt, "w1", "strike"))
        attempt = driver.restarted(handle)
    driver.run(functions.requeue(handle, attempt, "w1", "strike"))
    assert left(driver)["jobs"] == 0
    assert driver.submitted(a_submission(nonce="replay")).created
    assert left(driver)["jobs"] == 0
    driver.cancel("a")
    assert left(driver)["jobs"] == 0


def test_a_refusal_by_the_dispatcher_gives_back(driver: Driver) -> None:
    waiting(driver)
    handle = limited("a").handle
    driver.run(functions.assign(SHARD, "boss", [functions.Move(driver.job(handle).member, "", 0, 700)]))
    assert driver.job(handle).state is State.FAILED
    assert left(driver)["tokens"] == left(driver)["jobs"] == 0


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
