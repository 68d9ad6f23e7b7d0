"""Reads: what is there, what is not there yet, and what can not be read."""

from protocol import functions, keys, overview_reads, reads
from protocol.call import Call
from protocol.handle import Handle
from protocol.messages import ModelRecord
from protocol.states import Priority, State
from tests.support.builders import SHARD, SPEC, a_handle, join_worker
from tests.support.driver import Driver
from tests.support.store_clock import StoreClock


def test_a_model_belongs_to_one_pool(driver: Driver) -> None:
    record = ModelRecord(pool="pool", shards=2, context_tokens=4096)
    assert driver.run(functions.register("m", record)) == ""
    assert driver.run(functions.register("m", record)) == ""
    assert driver.run(functions.register("m", ModelRecord(pool="other"))) == "pool"
    assert driver.run(reads.models()) == {"m": record}


def test_what_is_not_there(driver: Driver) -> None:
    nobody = a_handle("nobody")
    assert driver.run(reads.models()) == {}
    assert driver.run(reads.job_record(nobody)) is None
    assert driver.run(reads.standing(nobody)) is None
    assert driver.run(reads.outcome(nobody)) is None
    assert driver.run(reads.waiting_job(SHARD, nobody.ref)) is None
    assert driver.run(reads.worker_record(SHARD, "nobody")) is None
    assert driver.run(reads.leases(SHARD)) == {}
    assert driver.log(nobody) == []
    assert driver.inbox("nobody") == []
    assert driver.run(reads.lane_depth(SHARD, Priority.LOW)) == 0


def test_a_waiting_job_as_the_dispatcher_weighs_it(driver: Driver) -> None:
    job = driver.submit(delay_ms=1000)
    waiting = driver.run(reads.waiting_job(SHARD, job.handle.ref))
    assert waiting is not None
    assert (waiting.spec, waiting.strikes, waiting.begun) == (SPEC, 0, False)
    assert waiting.deadline_ms - waiting.since_ms == job.deadline_ms
    assert driver.run(reads.due_count(SHARD)) == 1


def test_a_job_that_its_user_delayed_waits_from_the_end_of_its_delay(driver: Driver, store_clock: StoreClock) -> None:
    driver.join()
    handle = driver.submit(delay_ms=1_000).handle
    # Its submission is long ago, whatever the store's clock is made of.
    submitted_ms = driver.job(handle).submitted_ms - 60_000
    driver.redis.hset(keys.job(handle), "submitted", str(submitted_ms))
    store_clock.advance(1_001)
    due = int(driver.run(Call(("ZSCORE", keys.due(SHARD), handle.ref), float)))
    driver.lead()
    assert [(told, driver.job(handle).submitted_ms) for told in since(driver, handle)] == [(due, submitted_ms)] * 3

    attempt = driver.assign(handle)
    assert isinstance(attempt, int)
    started = driver.start(handle, attempt)
    assert started
    assert (started.waiting_ms, started.since_ms) == (due, due)
    driver.run(functions.requeue(handle, attempt, "w1", "try"))
    assert since(driver, handle) == [due] * 3
    again = driver.assign(handle)
    assert isinstance(again, int)
    started = driver.start(handle, again)
    assert started
    assert started.waiting_ms > started.since_ms == due


def test_what_an_older_library_let_ripen_waits_from_its_submission(driver: Driver, store_clock: StoreClock) -> None:
    driver.join()
    handle = driver.submit(delay_ms=1_000).handle
    store_clock.advance(1_001)
    driver.lead()
    driver.redis.hdel(keys.job(handle), "ripe")
    submitted_ms = driver.job(handle).submitted_ms
    assert since(driver, handle) == [submitted_ms] * 3
    attempt = driver.assign(handle)
    assert isinstance(attempt, int)
    started = driver.start(handle, attempt)
    assert started
    assert (started.waiting_ms, started.since_ms) == (submitted_ms, submitted_ms)


def since(driver: Driver, handle: Handle) -> list[int | None]:
    """Since when the job waits, as its record, the dispatcher and the overview tell."""
    waiting = driver.run(reads.waiting_job(SHARD, handle.ref))
    overview = driver.run(overview_reads.waits_since_ms(handle))
    return [driver.job(handle).since_ms, waiting.since_ms if waiting else None, overview]


def test_a_job_that_ran_and_came_back_was_begun(driver: Driver) -> None:
    handle, attempt = driver.running()
    driver.run(functions.requeue(handle, attempt, "w1", "try"))
    waiting = driver.run(reads.waiting_job(SHARD, handle.ref))
    assert waiting is not None
    assert waiting.begun


def test_a_stored_description_that_can_not_be_read_is_none(driver: Driver) -> None:
    job = driver.submit()
    driver.redis.hset(keys.job(job.handle), "spec", "{")
    assert driver.run(reads.waiting_job(SHARD, job.handle.ref)) is None


def test_where_a_log_stands(driver: Driver) -> None:
    handle, attempt = driver.running()
    driver.emit(handle, attempt, 1)
    driver.emit(handle, attempt, 2)
    assert driver.run(reads.standing(handle)) == reads.Standing(State.RUNNING, attempt, 2)
    assert [frame.seq for frame in driver.run(reads.log_after(handle, (attempt, 1)))] == [2]
    assert [frame.seq for frame in driver.run(reads.log_after(handle, (0, 0), count=1))] == [1]


def test_a_worker_and_its_report(driver: Driver) -> None:
    before = driver.run(reads.store_time_ms())
    driver.run(join_worker("w1", 3, running=2, kv_used_tokens=5, kv_total_tokens=10, taken=7))
    lease = driver.run(reads.leases(SHARD))["w1"]
    worker = driver.run(reads.worker_record(SHARD, "w1", lease))
    assert worker is not None
    assert (worker.label, worker.state, worker.slots, worker.held, worker.solo) == ("label-w1", "active", 3, 0, False)
    assert (worker.report.running, worker.report.kv, worker.report.taken) == (2, 0.5, 7)
    assert worker.lease_ms - worker.report_ms == 10_000
    assert worker.report_ms >= before
