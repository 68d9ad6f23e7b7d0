"""A worker's life on real servers: jobs through it, drain, stop, abort, reclaim, a dying engine."""

import asyncio

import pytest

from protocol import keys, reads
from protocol.functions import Move, assign, command
from protocol.states import Priority, State
from tests.support.builders import BOSS, SHARD, SPEC
from tests.support.waiting import eventually
from tests.worker.stage import FAST, PuppetEngine, staged
from worker.engine.base import EngineBusy, EngineDead, EngineFault, EngineRefused
from worker.session import Ending

BATCH = SPEC.model_copy(update={"stream": False})


async def test_a_streaming_job_from_assignment_to_result(redis_url: str) -> None:
    async with staged(redis_url) as stage:
        handle, flight = await stage.begin()
        assert (await stage.worker()).held == 1
        flight.say("One")
        await eventually(lambda: stage.log_text(handle) == "One")
        assert stage.driver.job(handle).first_token_ms > 0
        flight.say(" two", " three")
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.log_text(handle) == stage.outcome(handle).text == "One two three"
        assert stage.outcome(handle).usage["total_tokens"] == 2
        assert stage.driver.log(handle)[-1].seal is State.COMPLETED
        worker = await stage.worker()
        assert (worker.label, worker.slots, stage.inbox(worker)) == ("w", 4, [])


async def test_a_batch_job_has_no_log_but_a_time_to_its_first_token(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin(spec=BATCH, priority=Priority.MEDIUM)
        flight.say("Yes")
        flight.end()
        job = await stage.reaches(handle, State.COMPLETED)
        assert stage.driver.log(handle) == []
        assert job.started_ms <= job.first_token_ms <= job.finished_ms
        assert stage.outcome(handle).text == "Yes"


async def test_the_model_is_registered_with_its_pool(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        await stage.worker()
        record = stage.driver.run(reads.models())["m"]
        assert (record.pool, record.context_tokens) == (SHARD.pool, 1000)


async def test_an_engine_that_holds_less_than_was_asked_for_gets_no_more(valkey_url: str) -> None:
    async with staged(valkey_url, PuppetEngine(slots=2), slots=8) as stage:
        assert (await stage.worker()).slots == 2


async def test_many_jobs_at_once_and_the_report_counts_them(valkey_url: str) -> None:
    async with staged(valkey_url, PuppetEngine(slots=8)) as stage:
        begun = [await stage.begin(f"job{n}") for n in range(8)]
        last = max(stage.driver.job(handle).attempt for handle, _ in begun)

        async def reported() -> bool:
            report = (await stage.worker()).report
            return (report.running, report.capacity, report.taken) == (8, 8, last)

        await eventually(reported)
        for _, flight in begun:
            flight.say("x")
            flight.end()
        for handle, _ in begun:
            await stage.reaches(handle, State.COMPLETED)


async def test_a_drain_finishes_what_runs_and_takes_nothing_more(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin()
        worker = await stage.worker()
        # As it is when the dispatcher has not seen the new state yet.
        late = stage.driver.submit("late").handle
        stage.stop.signal()
        stage.driver.assign(late, worker.id)
        await stage.worker("draining")
        await stage.reaches(late, State.QUEUED)
        flight.say("Done")
        flight.end()
        assert await stage.task is Ending.DRAINED
        assert stage.driver.job(handle).state is State.COMPLETED
        assert stage.driver.run(reads.leases(SHARD)) == {}
        assert (stage.driver.job(late).tries, stage.driver.job(late).strikes) == (0, 0)


async def test_an_operator_drains_by_command(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        worker = await stage.worker()
        assert stage.driver.run(command(SHARD, worker.id, "drain"))
        assert await stage.task is Ending.DRAINED


async def test_what_a_drain_does_not_finish_in_time_is_handed_back(valkey_url: str) -> None:
    hasty = FAST.model_copy(update={"drain_s": 0.05})
    async with staged(valkey_url, settings=hasty) as stage:
        handle, flight = await stage.begin()
        stage.stop.signal()
        assert await stage.task is Ending.DRAINED
        assert flight.closed
        job = stage.driver.job(handle)
        assert (job.state, job.strikes) == (State.QUEUED, 0)


async def test_a_second_signal_stops_at_once(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin()
        stage.stop.signal()
        await stage.worker("draining")
        stage.stop.signal()
        assert await asyncio.wait_for(stage.task, 2) is Ending.STOPPED
        assert flight.closed
        job = stage.driver.job(handle)
        assert (job.state, job.strikes) == (State.QUEUED, 0)


async def test_a_cancelled_job_frees_its_slot_at_once(redis_url: str) -> None:
    async with staged(redis_url) as stage:
        _, flight = await stage.begin()
        assert stage.driver.cancel() is State.RUNNING
        await eventually(lambda: flight.closed, timeout_s=1)
        worker = await stage.worker()
        await eventually(lambda: stage.inbox(worker) == [])


async def test_an_expired_job_is_aborted(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin(deadline_ms=200)
        await eventually(lambda: flight.closed)
        await stage.reaches(handle, State.EXPIRED)


async def test_a_time_limit_ends_the_attempt_and_the_job(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin(spec=SPEC.model_copy(update={"time_limit_s": 0.1}))
        flight.say("half")
        job = await stage.reaches(handle, State.FAILED)
        assert flight.closed
        assert job.error == "request_timeout"
        assert stage.log_text(handle) == "half"


async def test_a_refusal_is_the_job_s_end_with_the_engine_s_own_words(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin()
        flight.fail(EngineRefused(400, {"error": {"message": "too long"}}))
        job = await stage.reaches(handle, State.FAILED)
        outcome = stage.outcome(handle)
        assert (job.error, outcome.status_code) == ("engine_refused", 400)
        assert outcome.body == {"error": {"message": "too long"}}


async def test_a_busy_engine_delays_the_job_and_blames_nobody(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin()
        flight.fail(EngineBusy(retry_after_s=30))
        job = await stage.reaches(handle, State.DELAYED)
        assert (job.tries, job.strikes) == (0, 0)


@pytest.mark.parametrize("error", [EngineFault("it answered 500"), RuntimeError("a defect")])
async def test_a_failing_engine_is_tried_a_bounded_number_of_times(valkey_url: str, error: Exception) -> None:
    twice = FAST.model_copy(update={"max_tries": 2})
    async with staged(valkey_url, settings=twice) as stage:
        handle, flight = await stage.begin()
        flight.fail(error)
        await stage.reaches(handle, State.DELAYED)
        await stage.assign_again(handle)
        (await stage.engine.flight("a")).fail(error)
        job = await stage.reaches(handle, State.FAILED)
        assert (job.error, job.tries, job.strikes) == ("engine_error", 1, 0)
        assert "defect" not in str(stage.outcome(handle).error)


@pytest.mark.parametrize("telling", [True, False])
async def test_a_dead_engine_is_a_strike_and_is_started_again(valkey_url: str, telling: bool) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin()
        stage.engine.may_start.clear()
        stage.engine.die(telling=telling)
        await stage.worker("unhealthy")
        job = await stage.reaches(handle, State.QUEUED)
        assert job.strikes == 1
        await eventually(lambda: flight.closed)
        stage.engine.may_start.set()
        await stage.assign_again(handle)
        again = await stage.engine.flight("a")
        again.say("Here")
        again.end()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.engine.starts == 2
        assert stage.outcome(handle).text == "Here"


async def test_an_engine_that_was_never_reached_is_no_strike(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin()
        flight.fail(EngineDead("no connection", reached=False))
        job = await stage.reaches(handle, State.DELAYED)
        assert job.strikes == 0


async def test_three_dead_engines_set_a_job_aside(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin()
        for _ in range(2):
            flight.fail(EngineDead("it died"))
            await stage.assign_again(handle)
            flight = await stage.engine.flight("a")
        flight.fail(EngineDead("it died"))
        job = await stage.reaches(handle, State.FAILED)
        assert (job.error, job.strikes) == ("struck_out", 3)


async def test_a_reclaimed_worker_writes_nothing_and_begins_a_new_life(redis_url: str) -> None:
    async with staged(redis_url) as stage:
        handle, flight = await stage.begin()
        old = await stage.worker()
        await stage.reclaim(old)
        flight.say("stale")
        flight.end()
        new = await stage.worker(but=old.id)
        await eventually(lambda: flight.closed)
        job = stage.driver.job(handle)
        assert (job.state, job.strikes) == (State.QUEUED, 1)
        assert stage.driver.log(handle) == []
        assert new.label == old.label
        await stage.assign_again(handle)
        again = await stage.engine.flight("a")
        again.say("fresh")
        again.end()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.log_text(handle) == "fresh"


async def test_a_body_that_can_t_be_read_fails_its_job_alone(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, _ = await stage.assign("bad", body=b"{")
        job = await stage.reaches(handle, State.FAILED)
        assert job.error == "malformed"
        good, flight = await stage.begin("good")
        flight.say("x")
        flight.end()
        await stage.reaches(good, State.COMPLETED)


async def test_a_description_that_can_t_be_read_fails_its_job_alone(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        worker = await stage.worker()
        stage.driver.lead()
        handle = stage.driver.submit("bad").handle
        member = stage.driver.job(handle).member
        stage.driver.redis.hset(keys.job(handle), "spec", "{")
        stage.driver.run(assign(SHARD, BOSS, [Move(member, worker.id)]))
        outcome = await eventually(lambda: stage.driver.run(reads.outcome(handle)))
        assert outcome is not None
        assert outcome.error is not None
        assert outcome.error.code == "malformed"


async def test_what_is_written_into_the_inbox_by_hand_blocks_nothing(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        worker = await stage.worker()
        stage.driver.redis.xadd(keys.inbox(SHARD, worker.id), {"k": "assign", "j": "nonsense"})
        stage.driver.redis.xadd(keys.inbox(SHARD, worker.id), {"x": b"\xff"})
        handle, flight = await stage.begin()
        flight.say("x")
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        await eventually(lambda: stage.inbox(worker) == [])
