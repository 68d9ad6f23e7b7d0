"""A job's way from submit to forget, and what repeats and refusals do to it."""

import pytest

from protocol import frames, functions, keys, reads
from protocol.call import run_all, value_of
from protocol.errors import ConflictingId, UnknownJob
from protocol.functions import FinishReply
from protocol.messages import DoneNotice, JobRecord, LoadReport, Outcome
from protocol.states import Priority, State
from tests.conftest import Backend
from tests.support.builders import BODY, SHARD, SPEC, a_submission, completed, tick_as
from tests.support.driver import Driver
from tests.support.store_clock import StoreClock

ENDS = (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED)


def bring_to(driver: Driver, clock: StoreClock, end: State) -> tuple[functions.Submission, int]:
    """A streaming job that ended so; its submission and the attempt that ran it."""
    handle, attempt = driver.running(deadline_ms=9_000)
    driver.emit(handle, attempt, 1)
    match end:
        case State.CANCELLED:
            driver.cancel()
        case State.EXPIRED:
            clock.advance(9_001)
            assert driver.run(tick_as()).expired == 1
        case _:
            driver.run(functions.finish(completed(handle, attempt, frames=1, state=end)))
    assert driver.job(handle).state == end
    return a_submission(), attempt


def test_the_happy_path(driver: Driver) -> None:
    job = driver.submit(reply_to="me")
    handle = job.handle
    assert driver.job(handle) == JobRecord(
        state=State.QUEUED,
        priority=Priority.HIGH,
        spec=SPEC,
        member="0000000000000001:t:a",
        deadline_ms=driver.job(handle).submitted_ms + job.deadline_ms,
        submitted_ms=driver.job(handle).submitted_ms,
    )
    driver.lead()
    driver.join()
    assert driver.assign(handle) == 1
    started = driver.start(handle, 1)
    assert started is not None
    assert (started.spec, started.body, started.priority, started.tries) == (SPEC, BODY, Priority.HIGH, 0)
    assert 0 < started.deadline_left_ms <= job.deadline_ms
    assert [driver.emit(handle, 1, seq, text=text) for seq, text in ((1, "Hel"), (2, "lo"))] == [1, 2]
    reply = driver.finish(handle, 1, frames=2)
    times = driver.job(handle)
    assert reply == FinishReply(accepted=True, first_token_ms=times.first_token_ms, finished_ms=times.finished_ms)
    assert (started.waiting_ms, started.assigned_ms, started.started_ms, started.lost) == (
        times.submitted_ms,
        times.assigned_ms,
        times.started_ms,
        None,
    )

    log = driver.log(handle)
    assert "".join(frame.text for frame in log) == "Hello"
    assert (log[-1].id, log[-1].seal) == ("1-3", State.COMPLETED)
    assert driver.run(reads.outcome(handle)) == Outcome(
        state=State.COMPLETED, attempt=1, status_code=200, body={"text": "by attempt 1"}
    )
    (notice,) = driver.run(reads.done_after([SHARD], "t", "me", ["0"], 1))
    assert notice == DoneNotice(notice.entry_id, handle, 1, State.COMPLETED)
    assert times.submitted_ms <= times.assigned_ms <= times.started_ms <= times.first_token_ms <= times.finished_ms

    assert driver.run(functions.forget_notice("me", notice))
    assert driver.run(reads.job_record(handle)) is None
    assert driver.run(reads.done_after([SHARD], "t", "me", ["0"], 1)) == []


def test_the_channel_carries_what_the_log_holds(driver: Driver) -> None:
    handle, attempt = driver.running()
    with driver.redis.pubsub(ignore_subscribe_messages=True) as channel:  # type: ignore[no-untyped-call]  # redis-py 5
        channel.subscribe(keys.tokens(handle))
        driver.emit(handle, attempt, 1)
        driver.finish(handle, attempt, frames=1)
        messages: list[bytes] = []
        while len(messages) < 2:
            message = channel.get_message(timeout=5)
            messages += [message["data"]] if message else []
    assert [frames.decode_message(message) for message in messages] == driver.log(handle)
    assert [frames.is_seal(message) for message in messages] == [False, True]


def test_a_job_that_does_not_stream_has_no_log(driver: Driver) -> None:
    handle, attempt = driver.running()
    end = functions.Finished(handle, attempt, "w1", 0, Outcome(state=State.COMPLETED), first_token_after_ms=70)
    assert driver.run(functions.finish(end)).accepted
    assert driver.log(handle) == []
    assert driver.job(handle).first_token_ms == driver.job(handle).started_ms + 70


def test_a_cancelled_job_keeps_the_first_token_of_an_attempt_that_was_given_back(driver: Driver) -> None:
    """Nobody read along, so what it said was told only as it was given back: that is not when its first token came."""
    handle, attempt = driver.running()
    said = [{"choices": [{"index": 0, "delta": {"content": "x"}}]}]
    assert driver.run(functions.emit(handle, attempt, "w1", 1, said, first_token_after_ms=70)) == 1
    started_ms = driver.job(handle).started_ms
    assert driver.run(functions.requeue(handle, attempt, "w1", "try")) == "ok"
    driver.cancel()
    assert driver.job(handle).first_token_ms == started_ms + 70


def test_a_job_may_finish_without_a_start(driver: Driver) -> None:
    driver.lead()
    driver.join()
    handle = driver.submit().handle
    assert driver.assign(handle) == 1
    assert driver.finish(handle, 1).accepted


def test_the_same_submit_again_is_the_same_job(driver: Driver) -> None:
    job = driver.submit()
    assert driver.submitted(job).created is False
    other_client = driver.submitted(a_submission(nonce="other", reply_to="me"))
    assert (other_client.state, other_client.created) == (State.QUEUED, False)
    assert driver.lane() == ["a"]
    driver.cancel()
    assert len(driver.run(reads.done_after([SHARD], "t", "me", ["0"], 1))) == 1


def test_another_body_under_a_living_id_is_refused(driver: Driver) -> None:
    driver.submit()
    with pytest.raises(ConflictingId):
        driver.submit(nonce="new", digest="other")


def test_submitting_a_completed_job_again_tells_the_new_reader(driver: Driver, store_clock: StoreClock) -> None:
    _, attempt = bring_to(driver, store_clock, State.COMPLETED)
    again = driver.submitted(a_submission(nonce="new", reply_to="me"))
    assert (again.state, again.attempt, again.created) == (State.COMPLETED, attempt, False)
    assert [notice.attempt for notice in driver.run(reads.done_after([SHARD], "t", "me", ["0"], 1))] == [attempt]
    with pytest.raises(ConflictingId):
        driver.submit(nonce="newer", digest="other")


@pytest.mark.parametrize("end", [State.FAILED, State.CANCELLED, State.EXPIRED])
@pytest.mark.parametrize("digest", ["digest", "other"])
def test_an_end_without_a_result_can_be_run_anew(
    driver: Driver, store_clock: StoreClock, end: State, digest: str
) -> None:
    job, old = bring_to(driver, store_clock, end)
    again = driver.submitted(a_submission(nonce="new", digest=digest, reply_to="me"))
    assert (again.state, again.created) == (State.QUEUED, True)
    assert again.attempt > old
    record = driver.job(job.handle)
    assert (record.strikes, record.tries, record.error, record.finished_ms) == (0, 0, "", 0)
    assert driver.log(job.handle) == []
    assert driver.run(reads.outcome(job.handle)) is None
    assert driver.restarted(job.handle) > again.attempt


def test_a_failure_that_is_to_stay_is_found_and_tells_the_new_reader(driver: Driver, store_clock: StoreClock) -> None:
    job, attempt = bring_to(driver, store_clock, State.FAILED)
    before, outcome = driver.job(job.handle), driver.run(reads.outcome(job.handle))
    again = driver.submitted(a_submission(nonce="new", reply_to="me", failure_stays=True))
    assert (again.state, again.attempt, again.created) == (State.FAILED, attempt, False)
    (notice,) = driver.run(reads.done_after([SHARD], "t", "me", ["0"], 1))
    assert (notice.handle, notice.attempt, notice.state) == (job.handle, attempt, State.FAILED)
    assert (driver.job(job.handle), driver.run(reads.outcome(job.handle))) == (before, outcome)
    assert driver.run(functions.forget_notice("me", notice))
    assert driver.run(reads.job_record(job.handle)) is None


@pytest.mark.parametrize("end", [State.CANCELLED, State.EXPIRED])
def test_what_was_cut_off_runs_anew_where_a_failure_is_to_stay(
    driver: Driver, store_clock: StoreClock, end: State
) -> None:
    bring_to(driver, store_clock, end)
    assert driver.submitted(a_submission(nonce="new", failure_stays=True)).created


@pytest.mark.parametrize("digest", ["digest", "other"])
def test_a_failure_of_another_body_or_without_its_outcome_does_not_stay(
    driver: Driver, store_clock: StoreClock, digest: str
) -> None:
    """Nobody could read it: whoever waits for it would wait for ever."""
    job, _ = bring_to(driver, store_clock, State.FAILED)
    if digest == "digest":
        driver.redis.delete(keys.result(job.handle))
    assert driver.submitted(a_submission(nonce="new", digest=digest, failure_stays=True)).created


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("failure_stays", [False, True])
def test_a_result_that_is_read_once_and_a_failure_that_stays_are_two_wishes(
    driver: Driver, *, once: bool, failure_stays: bool
) -> None:
    job = driver.submit(once=once, failure_stays=failure_stays)
    standing = driver.run(reads.standing(job.handle))
    assert standing
    assert standing.once == once


@pytest.mark.parametrize("end", ENDS)
def test_what_has_ended_stays_as_it_ended(driver: Driver, store_clock: StoreClock, end: State) -> None:
    job, attempt = bring_to(driver, store_clock, end)
    before = driver.job(job.handle)
    assert driver.cancel() == end
    assert driver.emit(job.handle, attempt, 2) == functions.STALE
    assert driver.start(job.handle, attempt) is None
    assert driver.run(functions.requeue(job.handle, attempt, "w1")) == "stale"
    assert driver.finish(job.handle, attempt).accepted == (end in (State.COMPLETED, State.FAILED))
    assert driver.job(job.handle) == before


@pytest.mark.parametrize("end", [State.CANCELLED, State.EXPIRED])
def test_a_worker_is_told_to_abort(driver: Driver, store_clock: StoreClock, end: State) -> None:
    _, attempt = bring_to(driver, store_clock, end)
    (entry,) = driver.inbox()
    assert (entry.kind, entry.ref, entry.attempt) == ("abort", "t:a", attempt)
    acknowledge = functions.Beat("w1", "w1", "active", 1, 10_000, LoadReport(), acknowledged=[entry.entry_id])
    assert driver.run(functions.beat(SHARD, acknowledge)) == 0
    assert driver.inbox() == []


def test_an_unknown_job_can_not_be_cancelled(driver: Driver) -> None:
    with pytest.raises(UnknownJob):
        driver.cancel("nobody")


def test_a_cancelled_job_that_never_ran_can_be_forgotten(driver: Driver) -> None:
    handle = driver.submit().handle
    assert not driver.run(functions.forget(handle, 0))
    driver.cancel()
    assert not driver.run(functions.forget(handle, 7))
    assert driver.run(functions.forget(handle, 0))
    assert driver.run(functions.forget(handle, 0))
    assert driver.run(reads.job_record(handle)) is None


async def test_one_round_trip_yields_errors_in_their_places(backend: Backend) -> None:
    redis = backend.connect()
    calls = [functions.submit(a_submission("a")), functions.submit(a_submission("a", nonce="n", digest="other"))]
    first, second = await run_all(redis, calls)
    await redis.aclose()
    assert value_of(first).created
    with pytest.raises(ConflictingId):
        value_of(second)
