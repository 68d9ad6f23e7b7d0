"""What careless builds got wrong: each test names one trap, in the words of the model checker that found it."""

import pytest

from protocol import functions, keys, reads
from protocol.call import Call
from protocol.errors import InvalidId, ProtocolViolation, QueueFull, StoreFull
from protocol.functions import STALE
from protocol.handle import Handle, Shard, check_own_id
from protocol.states import Priority, State
from tests.protocol.branches import BRANCHES, Branch, denials
from tests.support.builders import LIMITS, SHARD, a_submission, completed, tick_as
from tests.support.driver import Driver
from tests.support.servers import Server
from tests.support.store_clock import StoreClock

HOUR_MS = 3_600_000


def test_an_old_attempt_does_not_finish_a_new_run(driver: Driver) -> None:
    """Cancel, forget, submit the same id anew; then the old attempt finishes: refused, attempt numbers never repeat."""
    handle, old = driver.running()
    driver.cancel()
    assert driver.run(functions.forget(handle, old))
    driver.submit(nonce="second")
    new = driver.restarted(handle)
    assert new > old
    assert not driver.finish(handle, old).accepted
    assert driver.job(handle).state == State.RUNNING


@pytest.mark.parametrize("joined_late", [False, True])
def test_a_retried_submit_does_not_revive_a_cancelled_job(driver: Driver, joined_late: bool) -> None:
    """The client retries a submit whose reply was lost, after the job was cancelled: the cancelled job answers."""
    job = driver.submit()
    if joined_late:
        job = a_submission(nonce="of another client, for the same job")
        assert not driver.submitted(job).created
    driver.cancel()
    again = driver.submitted(job)
    assert (again.state, again.created) == (State.CANCELLED, False)


def test_finish_may_be_sent_twice(driver: Driver) -> None:
    """Send the same `finish` twice: ok both times, one result and one notice."""
    handle, attempt = driver.running(reply_to="me")
    assert driver.finish(handle, attempt).accepted
    assert driver.finish(handle, attempt).accepted
    assert len(driver.run(reads.done_after([SHARD], "t", "me", ["0"], 1))) == 1


def test_a_frame_is_neither_doubled_nor_missing(driver: Driver) -> None:
    """The same frame twice: ok without a write; one with a frame missing before it: the last sequence answers."""
    handle, attempt = driver.running()
    assert [driver.emit(handle, attempt, seq) for seq in (1, 2, 2, 1)] == [1, 2, 2, 2]
    assert driver.emit(handle, attempt, 4) == 2
    assert driver.finish(handle, attempt, frames=3).missing_after == 2
    assert [frame.seq for frame in driver.log(handle)] == [1, 2]


def test_a_worker_that_is_being_reclaimed_writes_nothing(driver: Driver, store_clock: StoreClock) -> None:
    """Reclaim a worker with more jobs than one call moves; it emits in between: refused from the first call on."""
    driver.lead()
    driver.join(slots=200)
    handles = [driver.submit(f"j{i:03}").handle for i in range(120)]
    attempts = [driver.restarted(handle) for handle in handles]
    driver.tick_after_lease(store_clock)
    left = [handle for handle in handles if driver.job(handle).state == State.RUNNING]
    assert len(left) == 20
    attempt = attempts[handles.index(left[0])]
    assert driver.emit(left[0], attempt, 1) == STALE
    assert not driver.finish(left[0], attempt).accepted
    assert driver.start(left[0], attempt) is None
    assert driver.run(functions.requeue(left[0], attempt, "w1")) == "stale"
    assert driver.join(join=False) is None
    assert driver.run(tick_as()).reclaimed == 1
    assert {driver.job(handle).strikes for handle in handles} == {1}


def test_two_processes_with_one_label_are_two_lives(driver: Driver) -> None:
    """Two processes with one label: two lives, no strike."""
    handle, attempt = driver.running(worker="life-1")
    driver.join("life-2")
    driver.run(tick_as())
    assert driver.job(handle).strikes == 0
    assert driver.finish(handle, attempt, "life-1").accepted


def test_commands_and_aborts_take_no_slot(driver: Driver) -> None:
    """An inbox full of commands and aborts: held jobs are counted apart."""
    driver.lead()
    driver.join(slots=1)
    for n in range(5):
        driver.run(functions.command(SHARD, "w1", "drain"))
        driver.restarted(driver.submit(f"j{n}").handle)
        driver.cancel(f"j{n}")
    assert isinstance(driver.assign(driver.submit("last").handle), int)


def test_an_inbox_that_was_empty_loses_and_repeats_nothing(driver: Driver) -> None:
    """A leased worker's inbox becomes empty, the worker reconnects: read from the start, only what is not finished."""
    handle, attempt = driver.running()
    (first,) = driver.inbox()
    driver.finish(handle, attempt)
    assert driver.inbox() == []
    driver.restarted(driver.submit("b").handle)
    (second,) = driver.inbox()
    assert driver.inbox(after=first.entry_id) == [second]
    assert (second.kind, second.ref) == ("assign", "t:b")


@pytest.mark.parametrize("jump_ms", [HOUR_MS, 60_000, -HOUR_MS])
def test_a_gap_in_time_strikes_nobody(driver: Driver, store_clock: StoreClock, jump_ms: int) -> None:
    """Redis's clock jumps an hour; Redis is away for a minute: leases are extended by the gap, no strikes."""
    handle, attempt = driver.running(deadline_ms=10 * HOUR_MS)
    store_clock.advance(jump_ms)
    assert driver.run(tick_as()).reclaimed == 0
    lease = driver.run(reads.leases(SHARD))["w1"] - driver.run(reads.store_time_ms())
    assert 5_000 < lease <= 10_000
    assert driver.finish(handle, attempt).accepted


def test_an_attempt_that_never_started_earns_no_strike(driver: Driver, store_clock: StoreClock) -> None:
    """A job is assigned but never started; its worker dies: no strike."""
    driver.lead()
    driver.join()
    handle = driver.submit().handle
    driver.assign(handle)
    driver.tick_after_lease(store_clock)
    assert (driver.job(handle).state, driver.job(handle).strikes) == (State.QUEUED, 0)


def test_a_job_past_its_deadline_is_not_assigned(driver: Driver, store_clock: StoreClock) -> None:
    """Assign a job after its deadline: refused, expired."""
    driver.lead()
    driver.join()
    handle = driver.submit(deadline_ms=500).handle
    store_clock.advance(501)
    assert driver.assign(handle) == "expired"
    assert driver.job(handle).state == State.EXPIRED


def test_a_job_on_a_dying_worker_is_cancelled_at_once(driver: Driver, store_clock: StoreClock) -> None:
    """Cancel a job whose worker is dying: ended at once; the abort may be lost."""
    handle, attempt = driver.running()
    store_clock.advance(11_000)
    assert driver.cancel() == State.RUNNING
    assert driver.job(handle).state == State.CANCELLED
    driver.run(tick_as())
    driver.tick_after_lease(store_clock)
    assert not driver.finish(handle, attempt).accepted
    assert driver.run(reads.leases(SHARD)) == {}


def test_a_flood_in_one_lane_does_not_hold_up_another(driver: Driver) -> None:
    """A tenant floods `medium`, then sends one `high`: its tag counts by lane."""
    for n in range(20):
        driver.submit(f"flood{n}", priority=Priority.MEDIUM)
    driver.submit("mine")
    driver.submit("other", tenant="other")
    assert driver.lane() == ["mine", "other"]


def test_a_newcomer_stands_before_those_whom_the_policy_passed_over(driver: Driver) -> None:
    """The policy picks the 20th of a flood; a newcomer submits: the lane's time follows the head that is left."""
    driver.lead()
    driver.join()
    flood = [driver.submit(f"flood{n:02}").handle for n in range(20)]
    driver.assign(flood[-1])
    driver.submit("newcomer", tenant="other")
    assert driver.lane()[:2] == ["flood00", "newcomer"]


def test_equal_scores_keep_the_order_of_arrival(driver: Driver) -> None:
    """Four jobs with equal scores: in order of arrival, not by name."""
    for name in "dcab":
        driver.submit(name, tenant=f"tenant-{name}")
    assert driver.lane() == ["d", "c", "a", "b"]


def test_a_delayed_job_is_scored_when_it_ripens(driver: Driver, store_clock: StoreClock) -> None:
    """A delayed job ripens: it must not jump ahead of the lane's time."""
    driver.lead()
    driver.join()
    driver.submit("late", delay_ms=1000)
    for n in range(3):
        driver.restarted(driver.submit(f"gone{n}", tenant="other").handle)
    driver.submit("waiting", tenant="third")
    store_clock.advance(1001)
    driver.run(tick_as())
    assert driver.lane() == ["waiting", "late"]


def test_delayed_jobs_count_towards_the_limits(driver: Driver) -> None:
    """A tenant delays 60 jobs past its limit of 20: limits count `due` too."""
    driver.run(tick_as(limits={**LIMITS, Priority.HIGH: 40}))
    for n in range(20):
        driver.submit(f"j{n}", delay_ms=1000)
    for n in range(20, 60):
        with pytest.raises(QueueFull, match="tenant has its limit of 20"):
            driver.submit(f"j{n}", delay_ms=1000)


def test_a_tenant_lives_while_its_jobs_wait(driver: Driver, store_clock: StoreClock) -> None:
    """A tenant is idle in traffic but has jobs queued: its tag and counts live until the counts are zero."""
    driver.submit("a", deadline_ms=100 * HOUR_MS)
    driver.submit("b", priority=Priority.LOW)
    driver.cancel("b")
    store_clock.advance(10 * HOUR_MS)
    tenant = driver.snapshot().entries[keys.tenant(SHARD, "t")]
    assert (tenant.value["q:high"], tenant.expires) == ("1", False)
    driver.cancel("a")
    assert driver.snapshot().entries[keys.tenant(SHARD, "t")].expires
    driver.submit("c")


def test_a_job_that_no_worker_takes_is_parked_with_its_score(driver: Driver, store_clock: StoreClock) -> None:
    """256 jobs at the head that no worker can take: parked in `due` with their scores, the lane goes on."""
    driver.lead()
    heavy = [driver.submit(f"heavy{n}").handle for n in range(3)]
    driver.submit("light")
    assert {driver.park(handle, 1000) for handle in heavy} == {"parked"}
    assert driver.lane() == ["light"]
    store_clock.advance(1001)
    driver.run(tick_as())
    assert driver.lane() == ["heavy0", "heavy1", "heavy2", "light"]


def test_a_log_expires_only_once_it_is_sealed(driver: Driver) -> None:
    """A job streams for an hour: its log does not expire in the middle."""
    handle, attempt = driver.running()
    driver.emit(handle, attempt, 1)
    assert not driver.snapshot().entries[keys.tokens(handle)].expires
    driver.finish(handle, attempt, frames=1)
    assert driver.snapshot().entries[keys.tokens(handle)].expires
    assert driver.log(handle)[-1].seal == State.COMPLETED


def test_a_done_stream_ends_by_itself_and_goes_by_the_batch(driver: Driver, store_clock: StoreClock) -> None:
    """The client of `done:<name>` never comes back, the runner restarts: expiry is renewed, the name is the batch's."""
    driver.submit("a", reply_to="batch")
    driver.submit("b", reply_to="batch")
    driver.cancel("a")
    store_clock.advance(50_000)
    driver.cancel("b")
    store_clock.advance(50_000)
    assert len(driver.run(reads.done_after([SHARD], "t", "batch", ["0"], 1))) == 2
    store_clock.advance(11_000)
    assert driver.run(reads.done_after([SHARD], "t", "batch", ["0"], 1)) == []


def test_a_dead_job_keeps_its_body_for_replay(driver: Driver) -> None:
    """A dead job's body is needed for replay: it ends with its `dead` entry, not before and not never."""
    handle, attempt = driver.running()
    for _ in range(2):
        driver.run(functions.requeue(handle, attempt, "w1", "strike"))
        attempt = driver.restarted(handle)
    driver.emit(handle, attempt, 1)
    assert driver.run(functions.requeue(handle, attempt, "w1", "strike")) == "dead"
    assert not driver.run(functions.forget(handle, attempt)) or driver.job(handle).strikes == 3
    week_ms = 7 * 24 * HOUR_MS
    for key in (keys.job(handle), keys.body(handle), keys.result(handle), keys.tokens(handle)):
        assert week_ms - 60_000 < driver.run(Call(("PTTL", key), int)) <= week_ms, key


@pytest.mark.parametrize("branch", BRANCHES, ids=lambda branch: branch.name)
def test_a_denied_key_leaves_no_half_move(real_driver: Driver, branch: Branch) -> None:
    """A role lacks the right to one key that a function touches late: all keys are checked before the first write."""
    assert not denials(real_driver, branch)


@pytest.mark.parametrize("own_id", ["a}b", "a{b", "a:b", "", "a b", "x" * 65, "a\n", "é"])
def test_an_own_id_can_not_leave_its_key(own_id: str) -> None:
    """An own id with `}` or `:` in it: refused, it would read another tenant's key."""
    with pytest.raises(InvalidId):
        check_own_id(own_id)
    with pytest.raises(InvalidId):
        Handle.parse(f"pool.0.t.{own_id}")


def test_functions_stay_on_one_slot_of_a_cluster(cluster_node: Server) -> None:
    """Another shard's `done`, or `models`, inside a function on a cluster: `done` exists in each, `models` apart."""
    with cluster_node.client() as client:
        for number in (0, 1):
            driver = Driver(client, Shard("pool", number))
            handle, attempt = driver.running(reply_to="me", delay_ms=0)
            driver.emit(handle, attempt, 1)
            driver.run(functions.requeue(handle, attempt, "w1"))
            driver.finish(handle, driver.restarted(handle))
            driver.submit("b")
            driver.cancel("b")
            assert driver.run(functions.leave(driver.shard, "w1"))
            driver.check()


def test_a_full_redis_refuses_new_work_and_finishes_what_it_has(real_driver: Driver) -> None:
    """Memory full: assign, beat, emit, finish, tick, cancel all run, or leases lapse and nothing drains."""
    driver = real_driver
    handle, attempt = driver.running("a", reply_to="me")
    others = [driver.submit(name).handle for name in "bcd"]
    driver.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreFull):
            driver.submit("refused")
        assert driver.join(join=False) == 1
        assert driver.join("w2") == 0
        driver.lead()
        assert driver.emit(handle, attempt, 1) == 1
        assert driver.finish(handle, attempt, frames=1).accepted
        given_back = driver.restarted(others[0])
        assert driver.run(functions.requeue(others[0], given_back, "w1", "try", 1)) == "ok"
        driver.cancel("b")
        driver.park(others[1], 1)
        driver.restarted(others[2])
        assert driver.run(functions.command(SHARD, "w1", "drain"))
        assert driver.run(functions.leave(SHARD, "w1"))
        assert driver.run(functions.forget(handle, attempt))
    finally:
        driver.redis.config_set("maxmemory", 0)


@pytest.mark.parametrize("state", ["running", "queued", "", "done\n", "completed "])
def test_a_state_that_no_job_ends_in_is_refused(driver: Driver, state: str) -> None:
    handle, attempt = driver.running()
    keys_and_args = list(functions.finish(completed(handle, attempt)).command)
    keys_and_args[keys_and_args.index(State.COMPLETED)] = state
    with pytest.raises(ProtocolViolation, match="no state that a job ends in"):
        driver.run(Call(tuple(keys_and_args), str))
    assert driver.job(handle).state is State.RUNNING
    assert driver.finish(handle, attempt).accepted
