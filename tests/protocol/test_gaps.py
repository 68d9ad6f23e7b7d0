"""What the simulation found: a clock that goes back, and a restart that loses the last seconds."""

from protocol import functions, keys, library, reads
from protocol.functions import Move
from protocol.states import State
from tests.support.builders import BOSS, SHARD, a_handle, tick_as
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


def test_many_that_were_put_off_do_not_wait_for_a_clock_that_went_back_either(
    driver: Driver, store_clock: StoreClock
) -> None:
    """Overloaded, thousands may be put off, more than one tick looks at; what users delayed may stand before them."""
    whole = library.source()
    fewer = whole.replace("RETRIES_HASTENED = 1000", "RETRIES_HASTENED = 10")
    assert fewer != whole
    driver.redis.function_load(fewer, replace=True)
    driver.lead()
    users = [driver.submit(f"later-{n}", delay_ms=70_000).handle for n in range(12)]
    handles = [driver.submit(f"late-{n}").handle for n in range(15)]
    moves = [Move(driver.job(one).member, park_ms=80_000, late=True) for one in handles]
    assert driver.run(functions.assign(SHARD, BOSS, moves)) == ["parked"] * len(moves)
    store_clock.advance(-HOUR_MS)
    for _ in range(4):
        driver.lead()
    assert {driver.job(one).state for one in handles} == {State.QUEUED}
    assert {driver.job(one).state for one in users} == {State.DELAYED}


def test_what_was_put_off_for_others_sake_is_recalled_and_nothing_else(driver: Driver) -> None:
    driver.lead()
    users = driver.submit("later", delay_ms=1_000).handle
    retried, attempt = driver.running("retried")
    assert driver.run(functions.requeue(retried, attempt, "w1", "try", 2_000)) == "ok"
    parked, late = driver.submit("parked").handle, driver.submit("late").handle
    assert driver.park(parked, 3_000) == "parked"
    place = driver.job(late).member
    assert driver.run(functions.assign(SHARD, BOSS, [Move(driver.job(late).member, park_ms=9_000, late=True)]))
    assert driver.run(tick_as()).recalled == 0
    assert driver.run(tick_as(recall=True)).recalled == 1
    assert driver.run(tick_as(recall=True)).recalled == 0
    assert driver.lane() == ["late"]
    assert driver.job(late).member == place
    assert {driver.job(one).state for one in (users, retried, parked)} == {State.DELAYED}


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
