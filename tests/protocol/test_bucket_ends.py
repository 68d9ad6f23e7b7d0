"""What a job's end gives back to its API key: all that it took and did not use, once."""

from typing import Any

import pytest

from protocol import functions, keys
from protocol.errors import RateLimited
from protocol.functions import Finished
from protocol.handle import Handle
from protocol.limits import Limits
from protocol.messages import Outcome
from protocol.states import State
from tests.protocol.limited import COST, MINUTE_MS, NAME, PROMPT, left, limited, runs, spent
from tests.support.builders import BODY, SHARD, SPEC, a_submission
from tests.support.driver import Driver


def ended(driver: Driver, handle: Handle, attempt: int, outcome: Outcome) -> None:
    assert driver.run(functions.finish(Finished(handle, attempt, "w1", 0, outcome))).accepted


def counted(prompt: int, output: int) -> Outcome:
    usage = {"prompt_tokens": prompt, "completion_tokens": output}
    return Outcome(state=State.COMPLETED, status_code=200, body={"usage": usage})


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
