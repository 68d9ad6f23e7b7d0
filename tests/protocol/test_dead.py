"""A job that was set aside: its history, its place in the list, and its way back."""

from protocol import functions, reads
from protocol.handle import Handle
from protocol.states import State
from tests.support.builders import BODY, SHARD, a_handle, a_submission, tick_as
from tests.support.driver import Driver
from tests.support.store_clock import StoreClock


def struck_out(driver: Driver, own_id: str = "a") -> Handle:
    """Its engine died three times under it."""
    handle, attempt = driver.running(own_id)
    for n in range(3):
        driver.run(functions.requeue(handle, attempt, "w1", "strike", why=f"death {n}"))
        if n < 2:
            attempt = driver.restarted(handle)
    return handle


def test_the_history_tells_how_each_attempt_ended(driver: Driver) -> None:
    handle, attempt = driver.running()
    driver.run(functions.requeue(handle, attempt, "w1", "try", why="the engine answered 500"))
    driver.run(functions.requeue(handle, driver.restarted(handle), "w1", "none", why="its worker drains"))
    job = driver.job(handle)
    told = [(entry.attempt, entry.worker, entry.fault, entry.why) for entry in job.history]
    assert told == [
        (1, "label-w1", "try", "the engine answered 500"),
        (2, "label-w1", "none", "its worker drains"),
    ]
    assert all(entry.at_ms >= job.submitted_ms for entry in job.history)


def test_a_lapsed_lease_stands_in_the_history(driver: Driver, store_clock: StoreClock) -> None:
    handle, _ = driver.running()
    store_clock.advance(20_000)
    driver.run(tick_as(times=functions.TickTimes(gap_ms=10**12)))
    (entry,) = driver.job(handle).history
    assert (entry.fault, entry.why) == ("strike", "its worker was silent until its lease ended")


def test_an_attempt_that_never_started_is_no_strike_in_the_history(driver: Driver) -> None:
    driver.lead()
    driver.join()
    handle = driver.submit().handle
    attempt = driver.assign(handle)
    assert isinstance(attempt, int)
    driver.run(functions.requeue(handle, attempt, "w1", "strike", why="its engine died"))
    (entry,) = driver.job(handle).history
    assert entry.fault == "none"


def test_the_history_keeps_the_last_16(driver: Driver) -> None:
    handle, attempt = driver.running()
    for n in range(20):
        driver.run(functions.requeue(handle, attempt, "w1", "none", why=str(n)))
        attempt = driver.restarted(handle)
    assert [entry.why for entry in driver.job(handle).history] == [str(n) for n in range(4, 20)]


def test_attempts_that_one_worker_gives_back_in_a_row_do_not_push_out_a_strike(driver: Driver) -> None:
    handle, attempt = driver.running()
    driver.run(functions.requeue(handle, attempt, "w1", "strike", why="its engine died"))
    for _ in range(20):
        attempt = driver.restarted(handle)
        driver.run(functions.requeue(handle, attempt, "w1", why="its worker takes nothing any more"))
    strike, rest = driver.job(handle).history
    assert (strike.fault, strike.attempt) == ("strike", 1)
    assert (rest.fault, rest.attempt) == ("none", attempt)


def test_the_dead_are_listed_newest_first_with_their_bodies(driver: Driver) -> None:
    first, second = struck_out(driver, "a"), struck_out(driver, "b")
    entries = driver.run(reads.dead_entries(SHARD, 10))
    assert [entry.handle for entry in entries] == [second, first]
    assert [entry.attempt for entry in entries] == [driver.job(second).attempt, driver.job(first).attempt]
    assert entries[0].at_ms >= driver.job(second).submitted_ms
    assert driver.run(reads.dead_entries(SHARD, 10, entries[0].entry_id)) == [entries[1]]
    assert driver.run(reads.stored_body(first)) == BODY
    assert [entry.fault for entry in driver.job(first).history] == ["strike"] * 3


def test_a_dead_job_that_is_submitted_anew_leaves_the_list(driver: Driver) -> None:
    handle = struck_out(driver)
    job = driver.run(reads.dead_job(handle))
    assert job is not None
    assert (job.priority, job.deadline_ms, job.digest) == (a_submission().priority, 3_600_000, "digest")
    assert driver.run(functions.submit(a_submission(nonce="again"))).created
    assert driver.run(reads.dead_entries(SHARD, 10)) == []
    assert driver.run(reads.dead_job(handle)) is None
    assert (driver.job(handle).state, driver.job(handle).strikes, driver.job(handle).history) == (State.QUEUED, 0, ())


def test_a_dead_job_whose_failure_is_to_stay_is_found_dead(driver: Driver) -> None:
    handle = struck_out(driver)
    (entry,) = driver.run(reads.dead_entries(SHARD, 10))
    again = driver.run(functions.submit(a_submission(nonce="again", reply_to="me", failure_stays=True)))
    assert (again.state, again.created) == (State.FAILED, False)
    (notice,) = driver.run(reads.done_after([SHARD], "t", "me", ["0"], 1))
    assert driver.run(functions.forget_notice("me", notice))
    assert driver.run(reads.dead_entries(SHARD, 10)) == [entry]
    assert driver.run(reads.dead_job(handle)) is not None


def test_only_a_job_that_was_set_aside_is_dead(driver: Driver) -> None:
    assert driver.run(reads.dead_job(a_handle())) is None
    driver.submit()
    assert driver.run(reads.dead_job(a_handle())) is None
