"""What the simulation found: a clock that goes back, and a restart that loses the last seconds."""

from protocol import functions, keys, reads
from protocol.states import State
from tests.support.builders import SHARD, a_handle, tick_as
from tests.support.driver import Driver
from tests.support.servers import Server
from tests.support.store_clock import StoreClock

HOUR_MS = 3_600_000


def test_a_dead_leader_s_lead_ends_though_the_clock_went_back(driver: Driver, store_clock: StoreClock) -> None:
    """Redis's clock goes back an hour, and the leader dies with it: another leads after a gap, not after that hour."""
    driver.lead()
    store_clock.advance(-HOUR_MS)
    assert not driver.run(tick_as("standby")).leads
    store_clock.advance(4_000)
    assert driver.run(tick_as("standby")).leads


def test_a_retry_does_not_wait_for_a_clock_that_went_back(driver: Driver, store_clock: StoreClock) -> None:
    """A retry was put off by a second when the clock went back an hour: it goes on; what a user delayed still waits."""
    handle, attempt = driver.running()
    later = driver.submit("later", delay_ms=2_000).handle
    assert driver.run(functions.requeue(handle, attempt, "w1", "try", 1_000)) == "ok"
    store_clock.advance(-HOUR_MS)
    driver.lead()
    assert driver.job(handle).state == State.QUEUED
    assert driver.job(later).state == State.DELAYED


def test_a_restarted_server_gives_no_attempt_number_again(server: Server) -> None:
    """Redis restarts and has lost the last two seconds: a number that was given in them is not given anew."""
    with server.client() as client:
        driver = Driver(client)
        _, first = driver.running()
        driver.submit("b")
    server.restart()
    with server.client() as client:
        driver = Driver(client)
        client.hset(keys.clock(SHARD), "attempt", first)
        driver.lead()
        second = driver.assign(a_handle("b"))
        assert isinstance(second, int)
        assert second > first + 100_000
        third = driver.submit("c").handle
        assert driver.assign(third) == second + 1
    # The same once more, back to the same count: those numbers are not given anew either.
    server.restart()
    with server.client() as client:
        driver = Driver(client)
        client.hset(keys.clock(SHARD), "attempt", first)
        driver.lead()
        driver.join()
        again = driver.assign(driver.submit("d").handle)
        assert isinstance(again, int)
        assert again > second + 100_000


def test_a_worker_whose_leaving_was_lost_blames_nobody(server: Server) -> None:
    """A worker leaves, Redis loses that with its last seconds: the job that it gave back earns no strike."""
    with server.client() as client:
        handle, _ = Driver(client).running()
    server.restart()
    with server.client() as client:
        driver = Driver(client)
        driver.lead()
        client.zadd(keys.workers(SHARD), {"w1": 1})
        driver.lead()
        job = driver.job(handle)
    assert (job.state, job.strikes) == (State.QUEUED, 0)
    assert "not heard" in job.history[-1].why


def test_a_server_that_leads_a_second_time_gives_no_attempt_number_again(driver: Driver) -> None:
    """It was a replica meanwhile: another has given numbers, and the last of them may be lost on the way back."""
    first = driver.running()[1]
    driver.redis.hset(keys.clock(SHARD), "attempt", str(first + 5))
    second = driver.assign(driver.submit("b").handle)
    assert isinstance(second, int)
    assert second > first + 100_000
    assert driver.assign(driver.submit("c").handle) == second + 1


def test_a_server_that_leads_a_second_time_gives_workers_a_whole_lease(driver: Driver) -> None:
    """Another has ticked meanwhile: nobody knows what was lost of it, as after a restart."""
    driver.running()
    driver.redis.hset(keys.clock(SHARD), "ticked", "1")
    driver.redis.zadd(keys.workers(SHARD), {"w1": 1})
    assert driver.run(tick_as()).reclaimed == 0
    assert driver.run(reads.leases(SHARD))["w1"] > 1


def test_a_lead_without_an_end_ends(driver: Driver, store_clock: StoreClock) -> None:
    driver.lead()
    driver.redis.persist(keys.leader(SHARD))
    assert not driver.run(tick_as("standby")).leads
    store_clock.advance(4_000)
    assert driver.run(tick_as("standby")).leads
