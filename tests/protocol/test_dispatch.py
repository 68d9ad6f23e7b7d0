"""What the dispatcher may count on: order in the lanes, limits, who gets a job and who does not, strikes."""

import pytest

from protocol import functions, keys, reads
from protocol.call import Call
from protocol.errors import QueueFull
from protocol.functions import Move, TickTimes
from protocol.messages import Why
from protocol.states import Priority, State
from tests.support.builders import BOSS, LEASE_MS, LIMITS, SHARD, SPEC, a_handle, join_worker, tick_as
from tests.support.driver import Driver
from tests.support.store_clock import StoreClock


def test_places_in_the_lane(driver: Driver) -> None:
    jobs = [driver.submit(name).handle for name in "abc"]
    places = [driver.run(reads.lane_place(handle, driver.job(handle))) for handle in jobs]
    assert places == [0, 1, 2]
    driver.cancel("a")
    assert driver.run(reads.lane_place(jobs[1], driver.job(jobs[1]))) == 0
    assert driver.run(reads.lane_place(jobs[0], driver.job(jobs[0]))) is None


def test_each_priority_has_its_lane(driver: Driver) -> None:
    for priority in Priority:
        driver.submit(priority, priority=priority)
    assert [driver.lane(priority) for priority in Priority] == [["high"], ["medium"], ["low"]]
    assert [driver.run(reads.lane_depth(SHARD, priority)) for priority in Priority] == [1, 1, 1]


def test_tenants_take_turns_by_what_they_cost(driver: Driver) -> None:
    for n in range(3):
        driver.submit(f"big{n}", tenant="big", spec=SPEC.model_copy(update={"output_tokens": 990}))
    for n in range(3):
        driver.submit(f"small{n}", tenant="small")
    assert driver.lane() == ["big0", "small0", "small1", "small2", "big1", "big2"]


def test_a_weighty_tenant_advances_slower(driver: Driver) -> None:
    driver.redis.hset(keys.clock(SHARD), "weight:vip", "2")
    for n in range(3):
        driver.submit(f"vip{n}", tenant="vip")
        driver.submit(f"plain{n}", tenant="plain")
    assert driver.lane() == ["vip0", "plain0", "vip1", "plain1", "vip2", "plain2"]
    scores = [entry.score for entry in driver.run(reads.lane_head(SHARD, Priority.HIGH, 10))]
    assert scores == [0, 0, 50, 100, 100, 200]


def test_a_newcomer_starts_at_the_time_of_the_lane(driver: Driver) -> None:
    """Not at zero: who comes late must not catch up on what others had before."""
    driver.lead()
    driver.join()
    for handle in [driver.submit(name).handle for name in "abcd"][:3]:
        driver.assign(handle)
    driver.submit("newcomer", tenant="other")
    scores = {entry.ref: entry.score for entry in driver.run(reads.lane_head(SHARD, Priority.HIGH, 10))}
    assert scores == {"other:newcomer": 200, "t:d": 300}


def test_a_retry_keeps_its_place(driver: Driver, store_clock: StoreClock) -> None:
    handle, attempt = driver.running()
    for name in "bc":
        driver.submit(name)
    assert driver.run(functions.requeue(handle, attempt, "w1", "try")) == "ok"
    assert driver.lane() == ["a", "b", "c"]
    assert driver.run(functions.requeue(handle, driver.restarted(handle), "w1", "try", 1000)) == "ok"
    assert (driver.lane(), driver.job(handle).tries) == (["b", "c"], 2)
    assert driver.run(tick_as()).next_due_ms in range(1, 1001)
    store_clock.advance(1001)
    assert driver.run(tick_as()).ripened == 1
    assert driver.lane() == ["a", "b", "c"]


def test_a_full_lane_refuses_before_anything_is_stored(driver: Driver) -> None:
    driver.run(tick_as(limits={**LIMITS, Priority.HIGH: 2}))
    driver.submit("a", tenant="one")
    with pytest.raises(QueueFull, match="tenant has its limit of 1 "):
        driver.submit("b", tenant="one")
    driver.submit("c", tenant="two")
    with pytest.raises(QueueFull, match="lane has its limit of 2 "):
        driver.submit("d", tenant="three")
    assert not driver.snapshot().value(keys.tenant(SHARD, "three"))
    driver.submit("e", tenant="one", priority=Priority.LOW)
    driver.run(functions.cancel(a_handle("a", "one")))
    driver.submit("b", tenant="one")


def test_a_job_with_two_strikes_runs_alone(driver: Driver) -> None:
    handle, attempt = driver.running()
    for _ in range(2):
        assert driver.run(functions.requeue(handle, attempt, "w1", "strike")) == "ok"
        other = driver.submit(f"other{attempt}").handle
        attempt = driver.restarted(handle)
    assert driver.assign(other) == "worker"
    worker = driver.run(reads.worker_record(SHARD, "w1"))
    assert worker is not None
    assert worker.solo
    driver.finish(handle, attempt)
    driver.restarted(other)


def test_a_job_with_two_strikes_waits_for_an_empty_worker(driver: Driver) -> None:
    handle, attempt = driver.running()
    driver.run(functions.requeue(handle, attempt, "w1", "strike"))
    driver.run(functions.requeue(handle, driver.restarted(handle), "w1", "strike"))
    other = driver.submit("other").handle
    running = driver.restarted(other)
    assert driver.assign(handle) == "worker"
    driver.finish(other, running)
    driver.restarted(handle)


def test_three_strikes_set_a_job_aside_and_its_neighbours_complete(driver: Driver) -> None:
    handle, attempt = driver.running()
    neighbour = driver.submit("b").handle
    neighbours = driver.restarted(neighbour)
    driver.run(functions.requeue(handle, attempt, "w1", "strike"))
    assert driver.finish(neighbour, neighbours).accepted
    driver.run(functions.requeue(handle, driver.restarted(handle), "w1", "strike"))
    assert driver.run(functions.requeue(handle, driver.restarted(handle), "w1", "strike")) == "dead"
    outcome = driver.run(reads.outcome(handle))
    assert outcome is not None
    assert outcome.error is not None
    assert (driver.job(handle).state, outcome.error.code) == (State.FAILED, "struck_out")
    assert driver.run(reads.dead_count(SHARD)) == 1


@pytest.mark.parametrize(
    "changes", [{"state": "draining"}, {"state": "starting"}, {"slots": 0}, {"lease_ms": -1}], ids=str
)
def test_a_worker_that_is_not_ready_gets_nothing(driver: Driver, changes: dict[str, object]) -> None:
    driver.lead()
    driver.run(join_worker(**changes))  # type: ignore[arg-type]  # of mixed types by design
    assert driver.assign(driver.submit().handle) == "worker"
    assert driver.assign(a_handle(), "unknown") == "worker"


def test_only_the_leader_assigns(driver: Driver, store_clock: StoreClock) -> None:
    driver.join(lease_ms=10 * LEASE_MS)
    handle = driver.submit().handle
    assert driver.run(tick_as("boss")).leads
    assert not driver.run(tick_as("standby")).leads
    assert driver.assign(handle, token="standby") is None
    store_clock.advance(LEASE_MS + 1)
    assert driver.run(tick_as("standby")).leads
    assert driver.assign(handle, token="boss") is None
    assert driver.assign(handle, token="standby") == 1


def test_one_call_assigns_many(driver: Driver) -> None:
    driver.lead()
    driver.join(slots=2)
    jobs = [driver.submit(name).handle for name in "abc"]
    members = [driver.job(handle).member for handle in jobs]
    moves = [Move(members[0], "w1"), Move(members[0], "w1"), Move(members[1], "w1"), Move(members[2], "w1")]
    assert driver.run(functions.assign(SHARD, "boss", moves)) == [1, "gone", 3, "worker"]


def test_leaving_hands_everything_back(driver: Driver) -> None:
    handle, _ = driver.running()
    driver.submit("b")
    assert driver.run(functions.leave(SHARD, "w1"))
    assert driver.run(functions.leave(SHARD, "w1"))
    assert (driver.lane(), driver.job(handle).strikes) == (["a", "b"], 0)
    assert driver.run(reads.worker_record(SHARD, "w1")) is None
    assert not driver.run(functions.command(SHARD, "w1", "drain"))


def test_a_worker_that_died_while_it_left_is_not_to_blame(driver: Driver) -> None:
    # So many calls may take a slow machine longer than a lead lasts.
    patient = TickTimes(lead_ms=600_000, lease_ms=LEASE_MS, gap_ms=600_000)
    driver.run(tick_as(times=patient))
    driver.join(slots=120)
    handles = [driver.submit(f"j{n:03}").handle for n in range(120)]
    for handle in handles:
        driver.restarted(handle)
    assert not driver.run(functions.leave(SHARD, "w1"))
    assert driver.run(tick_as(times=patient)).reclaimed == 1
    assert {(driver.job(handle).state, driver.job(handle).strikes) for handle in handles} == {(State.QUEUED, 0)}


def test_a_command_reaches_the_inbox(driver: Driver) -> None:
    driver.join()
    assert driver.run(functions.command(SHARD, "w1", "drain"))
    (entry,) = driver.inbox()
    assert (entry.kind, entry.command) == ("command", "drain")


def test_a_job_that_can_not_be_read_is_set_aside(driver: Driver) -> None:
    driver.lead()
    handle = driver.submit().handle
    assert driver.move(handle, worker="", park_ms=0) == "malformed"
    assert (driver.job(handle).state, driver.job(handle).error) == (State.FAILED, "malformed")
    assert driver.run(reads.dead_count(SHARD)) == 1


@pytest.mark.parametrize("value", ["a string", None], ids=["no hash", "missing"])
def test_an_entry_without_its_job_is_removed(driver: Driver, value: str | None) -> None:
    driver.lead()
    driver.join()
    orphan = a_handle("orphan")
    driver.redis.zadd(keys.lane(SHARD, Priority.HIGH), {f"1:{orphan.ref}": 0, "of no form": 0})
    if value:
        driver.redis.set(keys.job(orphan), value)
    moves = [Move(f"1:{orphan.ref}", "w1"), Move("of no form", "w1")]
    assert driver.run(functions.assign(SHARD, "boss", moves)) == ["gone", "gone"]
    assert driver.lane() == []
    driver.redis.delete(keys.job(orphan))


def test_one_hint_is_enough(driver: Driver) -> None:
    driver.lead()
    driver.join()
    driver.submit()
    assert len(driver.snapshot().value(keys.events(SHARD))) == 1
    assert driver.run(functions.wake(SHARD, BOSS)) is True
    assert driver.snapshot().value(keys.events(SHARD), []) == []
    driver.submit("b")
    assert len(driver.snapshot().value(keys.events(SHARD))) == 1


def test_a_deposed_leader_clears_no_hint(driver: Driver) -> None:
    driver.lead()
    driver.submit()
    before = driver.snapshot()
    assert driver.run(functions.wake(SHARD, "deposed")) is False
    assert driver.snapshot() == before


def test_an_older_dispatcher_that_names_no_leader_clears_the_hint(driver: Driver) -> None:
    driver.lead()
    driver.submit()
    driver.run(Call(("FCALL", "tf1_wake", 1, keys.events(SHARD)), int))
    assert driver.snapshot().value(keys.events(SHARD), []) == []


def test_a_refused_job_has_failed_and_says_how_long_it_would_have_waited(driver: Driver) -> None:
    driver.lead()
    job = driver.submit(reply_to="me")
    member = driver.job(job.handle).member
    assert driver.run(functions.assign(SHARD, "boss", [Move(member, refuse_ms=701)])) == ["refused"]
    record, outcome = driver.job(job.handle), driver.run(reads.outcome(job.handle))
    assert outcome is not None
    assert outcome.error is not None
    assert (record.state, record.error, outcome.error.code) == (State.FAILED, "unreachable", "unreachable")
    assert "701 ms" in outcome.error.message
    assert outcome.error.wait_ms == 701
    assert driver.lane() == []
    assert driver.submitted(job).created is False
    driver.check()


def test_the_reason_of_an_assignment_stays_with_the_job_until_the_next(driver: Driver) -> None:
    why = Why(policy="p", predicted_ms=30, scores={"gpu-0": 30, "gpu-1": 90})
    driver.lead()
    driver.join()
    handle = driver.submit().handle
    assert driver.job(handle).why is None
    driver.run(functions.assign(SHARD, "boss", [Move(driver.job(handle).member, "w1", why=why)]))
    assert driver.job(handle).why == why
    attempt = driver.job(handle).attempt
    driver.start(handle, attempt)
    driver.run(functions.requeue(handle, attempt, "w1", "none"))
    assert driver.job(handle).why == why
    driver.assign(handle)
    assert driver.job(handle).why is None
