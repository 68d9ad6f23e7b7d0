"""Workers and libraries of two versions beside each other, as while a fleet is upgraded."""

from protocol import functions, keys
from protocol.call import fcall
from protocol.functions import FinishReply
from protocol.handle import Handle
from tests.support.builders import completed
from tests.support.driver import Driver
from tests.support.store_clock import StoreClock

OLD_REPLY = 8
"""Elements of `start`'s answer before there were times in it."""


def asked_as_before(driver: Driver, handle: Handle, attempt: int, worker: str) -> list[object]:
    """What an older worker hears as it starts an attempt."""
    names = [keys.job(handle), keys.body(handle), keys.workers(handle.shard), keys.tokens(handle)]
    return driver.run(fcall("start", names, (handle.ref, attempt, worker), list))


def test_an_older_worker_hears_what_it_can_read_and_the_next_one_of_the_lost_attempt(
    driver: Driver, store_clock: StoreClock
) -> None:
    handle, lost = driver.running()
    driver.tick_after_lease(store_clock)
    driver.join("w2")
    attempt = driver.assign(handle, "w2")
    assert isinstance(attempt, int)
    old = asked_as_before(driver, handle, attempt, "w2")
    assert (len(old), old[0]) == (OLD_REPLY, b"ok")
    new = driver.start(handle, attempt, "w2")
    assert new
    assert new.lost
    assert (new.lost.attempt, new.started_ms) == (lost, driver.job(handle).started_ms)
    again = driver.start(handle, attempt, "w2")
    assert again
    assert again.lost is None


def test_an_older_library_s_start_is_read_without_times(driver: Driver) -> None:
    handle, attempt = driver.running()
    started = functions.start(handle, attempt, "w1").parse(asked_as_before(driver, handle, attempt, "w1"))
    assert started
    now = driver.start(handle, attempt, "w1")
    assert now
    assert (started.spec, started.body, started.priority) == (now.spec, now.body, now.priority)
    assert (started.waiting_ms, started.since_ms, started.assigned_ms, started.started_ms) == (0, 0, 0, 0)
    assert started.lost is None


def test_an_older_library_s_finish_is_accepted_without_times(driver: Driver) -> None:
    handle, attempt = driver.running()
    parse = functions.finish(completed(handle, attempt)).parse
    assert parse([b"ok"]) == FinishReply(accepted=True)
    assert parse([b"ok", b"3", b"4"]) == FinishReply(accepted=True, first_token_ms=3, finished_ms=4)
