"""Jobs that would come too late: refused with the predicted wait, or kept waiting, as the settings say."""

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from protocol import keys, reads
from protocol.call import run
from protocol.messages import Outcome
from protocol.settings import Settings
from protocol.states import Priority, State
from scheduler.metrics import Metrics
from scheduler.policy.decision import LATE_KEPT
from tests.scheduler.stage import QUICK, Stage, a_loop
from tests.support.builders import SHARD, SPEC
from tests.support.waiting import eventually

STRICT = QUICK.model_copy(update=dict.fromkeys(("admission_high", "admission_medium", "admission_low"), "refuse"))
PATIENT = SPEC.model_copy(update={"best_effort": True})
LONG = SPEC.model_copy(update={"prompt_tokens": 100_000})
"""Some eight seconds of prefill on the reference engine."""


async def outcome(stage: Stage, own_id: str = "a", **changes: object) -> Outcome:
    handle = await stage.submit(own_id, **changes)
    job = await stage.becomes(handle, State.FAILED)
    assert (job.error, job.worker, job.attempt) == ("unreachable", "", 0)
    found = await run(stage.redis, reads.outcome(handle))
    assert found is not None
    assert found.error is not None
    return found


async def test_while_all_streams_are_slow_online_jobs_are_refused(redis: Redis, stage: Stage) -> None:
    await stage.join(slow_share=0.6)
    async with a_loop(redis, STRICT):
        refused = await outcome(stage)
        assert refused.error is not None
        assert refused.error.code == "unreachable"
        assert "ms after it could run" in refused.error.message
        offline = await stage.submit("offline", priority=Priority.MEDIUM)
        await stage.becomes(offline, State.ASSIGNED)
    assert await run(redis, reads.due_count(stage.shard)) == 0


async def test_what_its_user_delayed_has_not_waited_meanwhile(redis: Redis, stage: Stage) -> None:
    await stage.join()
    handle = await stage.submit(delay_ms=1)
    long_ago_ms = (await stage.job(handle)).submitted_ms - 600_000
    await stage.write("HSET", keys.job(handle), "submitted", long_ago_ms)
    registry = CollectorRegistry()
    metrics = Metrics(registry, "predictive", {})
    labels = {"pool": SHARD.pool, "shard": str(SHARD.number), "priority": "high"}

    def waited(each: str) -> float | None:
        return registry.get_sample_value(f"tokenfleet_scheduler_wait_seconds_{each}", labels)

    async with a_loop(redis, STRICT, metrics=metrics):
        job = await stage.becomes(handle, State.ASSIGNED)
        # It counts once Redis has answered.
        await eventually(lambda: waited("count") == 1)
    assert (job.submitted_ms, job.since_ms) == (long_ago_ms, job.ripe_ms)
    assert 0 <= (waited("sum") or 0) < 60


@pytest.mark.parametrize("settings", [QUICK, STRICT])
async def test_best_effort_waits_as_long_as_it_must(redis: Redis, stage: Stage, settings: Settings) -> None:
    await stage.join(slow_share=0.6)
    async with a_loop(redis, settings):
        job = await stage.submit(spec=PATIENT if settings is STRICT else SPEC)
        await stage.becomes(job, State.ASSIGNED)


async def test_late_jobs_take_room_as_soon_as_there_is_some(redis: Redis, stage: Stage) -> None:
    """Those in the lane, and those that were put off: none waits out its time beside an idle worker."""
    await stage.join(slow_share=0.6, kv_used_tokens=80_000, kv_total_tokens=100_000)
    async with a_loop(redis, QUICK):
        await stage.submit()
        assert await stage.receives() == ["a"]
        handles = [await stage.submit(f"late-{n}") for n in range(LATE_KEPT + 20)]
        await eventually(lambda: put_off(redis))
        await stage.join("idle", slots=LATE_KEPT + 50)
        # Each time that one waited out would be longer by half.
        for handle in handles:
            await stage.becomes(handle, State.ASSIGNED)


async def put_off(redis: Redis) -> bool:
    return await run(redis, reads.due_count(SHARD)) > 0


@pytest.mark.parametrize("settings", [QUICK, STRICT], ids=["by default", "strict"])
async def test_a_job_that_can_not_meet_its_deadline_is_refused_of_any_priority(
    redis: Redis, stage: Stage, settings: Settings
) -> None:
    await stage.join(kv_total_tokens=500_000)
    async with a_loop(redis, settings):
        for priority in Priority:
            refused = await outcome(stage, priority, priority=priority, spec=LONG, deadline_ms=5_000)
            assert refused.error is not None
            wait_ms = int(refused.error.message.split("come ")[1].split(" ms")[0])
            assert 5_000 < wait_ms < 60_000
            assert refused.error.wait_ms == wait_ms
        in_time = await stage.submit("in-time", priority=Priority.LOW, spec=LONG, deadline_ms=600_000)
        await stage.becomes(in_time, State.ASSIGNED)


async def test_only_the_priorities_that_are_named_are_refused(redis: Redis, stage: Stage) -> None:
    await stage.join(kv_total_tokens=500_000)
    asked = {"admission_medium": "refuse", "admission_low": "best_effort"}
    async with a_loop(redis, QUICK.model_copy(update=asked)):
        await outcome(stage, priority=Priority.MEDIUM, spec=LONG, deadline_ms=5_000)
        low = await stage.submit("low", priority=Priority.LOW, spec=LONG, deadline_ms=5_000)
        await stage.becomes(low, State.ASSIGNED)


async def test_whoever_asked_is_told_of_a_refusal_and_may_try_again(redis: Redis, stage: Stage) -> None:
    await stage.join(slow_share=0.6)
    async with a_loop(redis, STRICT):
        await outcome(stage, reply_to="me")
        (notice,) = await run(redis, reads.done_after([stage.shard], "t", "me", ["0"], 1))
        assert (notice.handle.own_id, notice.state) == ("a", State.FAILED)
        await stage.join(join=False)
        again = await stage.submit(nonce="again")
        await stage.becomes(again, State.ASSIGNED)


async def test_a_job_says_why_its_worker_got_it(redis: Redis, stage: Stage) -> None:
    for worker in ("w1", "w2", "w3", "w4"):
        await stage.join(worker)
    async with a_loop(redis):
        why = (await stage.becomes(await stage.submit(), State.ASSIGNED)).why
    assert why is not None
    assert why.policy == "predictive"
    assert len(why.scores) == 3
    assert why.scores.keys() <= {"label-w1", "label-w2", "label-w3", "label-w4"}
    assert min(why.scores.values()) <= why.predicted_ms
