"""A worker that falls silent: what it has not begun does not wait for its lease's end, what it runs does."""

from protocol import keys, reads
from protocol.functions import TickTimes
from protocol.states import State
from tests.support.builders import SHARD, join_worker, tick_as
from tests.support.driver import Driver
from tests.support.servers import Server
from tests.support.store_clock import StoreClock

QUIET_MS = TickTimes().quiet_ms


def test_what_it_has_not_begun_is_taken_back_at_once(driver: Driver, store_clock: StoreClock) -> None:
    begun, _ = driver.running("begun")
    waiting = driver.submit("waiting").handle
    attempt = driver.assign(waiting)
    store_clock.advance(QUIET_MS + 1)
    driver.lead()
    job = driver.job(waiting)
    assert (job.state, job.strikes, job.tries, job.worker) == (State.QUEUED, 0, 0, "")
    assert [(past.attempt, past.fault, past.why) for past in job.history] == [
        (attempt, "none", "its worker fell silent before it began")
    ]
    assert driver.job(begun).state == State.RUNNING
    assert [entry.ref for entry in driver.inbox()] == ["t:begun"]
    assert driver.run(join_worker(join=False)) == 1
    driver.check()


def test_it_cannot_begin_what_was_taken_back(driver: Driver, store_clock: StoreClock) -> None:
    driver.lead()
    driver.join()
    handle = driver.submit().handle
    attempt = driver.assign(handle)
    assert isinstance(attempt, int)
    store_clock.advance(QUIET_MS + 1)
    driver.lead()
    assert driver.start(handle, attempt) is None
    again = driver.assign(handle)
    assert isinstance(again, int)
    assert driver.start(handle, again)


def test_a_worker_that_is_heard_keeps_all(driver: Driver, store_clock: StoreClock) -> None:
    driver.lead()
    driver.join()
    handle = driver.submit().handle
    driver.assign(handle)
    for _ in range(3):
        store_clock.advance(QUIET_MS - 1)
        driver.join()
        driver.lead()
    assert driver.job(handle).state == State.ASSIGNED


def test_nobody_counts_as_silent_before_it_could_be_heard_after_a_restart(server: Server) -> None:
    """Redis restarts within a moment: who lives has a second to be heard, and keeps what it has."""
    with server.client() as client:
        driver = Driver(client)
        driver.lead()
        driver.join("w1")
        driver.join("w2")
        handle = driver.submit().handle
        driver.assign(handle, "w2")
    server.restart()
    with server.client() as client:
        driver = Driver(client)
        now_ms = driver.run(reads.store_time_ms())
        # Both leases were about to end.
        client.zadd(keys.workers(SHARD), {"w1": now_ms + 10, "w2": now_ms + 10})
        for worker in ("w1", "w2"):
            client.hset(keys.worker(SHARD, worker), "at", now_ms - QUIET_MS - 1)
        driver.lead()
        leases = driver.run(reads.leases(SHARD))
        assert all(now_ms + 900 < lease < now_ms + 2_000 for lease in leases.values())
        assert driver.job(handle).state == State.ASSIGNED
        driver.join("w1")
        assert driver.run(reads.leases(SHARD))["w1"] > now_ms + 5_000


def test_a_restart_shortens_no_lease(server: Server) -> None:
    with server.client() as client:
        driver = Driver(client)
        driver.lead()
        driver.join()
        before = driver.run(reads.leases(SHARD))
    server.restart()
    with server.client() as client:
        driver = Driver(client)
        driver.run(tick_as())
        assert driver.run(reads.leases(SHARD)) == before
