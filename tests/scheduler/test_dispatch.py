"""From a lane to an inbox: who gets what, and when."""

from redis.asyncio import Redis

from protocol.call import run
from protocol.functions import Beat, beat, cancel
from protocol.messages import JobSpec, LoadReport
from protocol.states import Priority, State
from tests.scheduler.stage import LARGE, Stage, a_loop
from tests.support.store_clock import StoreClock

REPORT = LoadReport(capacity=8)


async def test_a_job_goes_to_the_worker_with_the_least_work(redis: Redis, stage: Stage) -> None:
    await stage.join("busy", running=2, capacity=4, pending_prefill_tokens=5_000)
    await stage.join("idle", capacity=4)
    async with a_loop(redis):
        await stage.submit()
        assert await stage.receives("idle") == ["a"]
        assert await stage.inbox("busy") == []


async def test_what_was_assigned_since_the_report_counts(redis: Redis, stage: Stage) -> None:
    for worker in ("w1", "w2"):
        await stage.join(worker, slots=8, capacity=8)
    for own_id in "abcdefgh":
        await stage.submit(own_id)
    async with a_loop(redis):
        assert len(await stage.receives("w1", 4)) == 4
        assert len(await stage.receives("w2", 4)) == 4


async def test_the_most_urgent_comes_first(redis: Redis, stage: Stage) -> None:
    for priority in reversed(Priority):
        await stage.submit(priority, priority=priority)
    async with a_loop(redis):
        await stage.join(slots=1)
        for priority in Priority:
            assert await stage.receives() == [priority]
            await stage.end()


async def test_jobs_wait_in_their_lane_until_a_worker_has_room(redis: Redis, stage: Stage) -> None:
    async with a_loop(redis):
        await stage.join(slots=2)
        for own_id in "abc":
            last = await stage.submit(own_id)
        assert await stage.receives(count=2) == ["a", "b"]
        assert (await stage.job(last)).state is State.QUEUED
        await stage.end()
        assert await stage.receives() == ["c"]


async def test_more_jobs_than_a_round_sees(redis: Redis, stage: Stage) -> None:
    for number in range(600):
        await stage.submit(f"{number}")
    await stage.join(slots=599, lease_ms=60_000)
    async with a_loop(redis):
        await stage.waiting(1, timeout_s=30)


async def test_a_delayed_job_ripens(redis: Redis, stage: Stage) -> None:
    await stage.join()
    async with a_loop(redis):
        job = await stage.submit(delay_ms=150)
        assert (await stage.job(job)).state is State.DELAYED
        assert await stage.receives() == ["a"]


async def test_more_jobs_ripen_than_one_tick_moves(redis: Redis, stage: Stage) -> None:
    await stage.join(slots=256, lease_ms=60_000)
    for number in range(250):
        await stage.submit(f"{number}", delay_ms=50)
    async with a_loop(redis):
        await stage.receives(count=250, timeout_s=30)


async def test_a_job_expires_while_it_is_queued(redis: Redis, stage: Stage) -> None:
    async with a_loop(redis):
        await stage.becomes(await stage.submit(deadline_ms=80), State.EXPIRED)


async def test_a_job_that_fits_no_worker_is_parked_and_comes_back(
    redis: Redis, stage: Stage, store_clock: StoreClock
) -> None:
    await stage.join("small", kv_total_tokens=500)
    async with a_loop(redis):
        large = await stage.submit(spec=LARGE)
        await stage.becomes(large, State.DELAYED)
        await stage.submit("b")
        assert await stage.receives("small") == ["b"]
        await stage.join("big", kv_total_tokens=5_000)
        store_clock.advance(5_000)
        assert await stage.receives("big") == ["a"]


async def test_a_cancelled_job_makes_room(redis: Redis, stage: Stage) -> None:
    async with a_loop(redis):
        await stage.join(slots=1)
        first = await stage.submit("a")
        assert await stage.receives() == ["a"]
        second = await stage.submit("b")
        await run(redis, cancel(first))
        await stage.becomes(second, State.ASSIGNED)


async def test_a_job_goes_to_the_worker_whose_cache_holds_its_prefix(redis: Redis, stage: Stage) -> None:
    shared = JobSpec(model="m", endpoint="/v1/completions", prompt_tokens=300, output_tokens=10, prefix=("prefix",))
    await stage.join("cold", slots=8, capacity=8)
    await run(redis, beat(stage.shard, Beat("cold", "cold", "active", 8, 10_000, REPORT, removed=["prefix"])))
    await stage.join("warm", slots=8, capacity=8, kv_used_tokens=10_000, kv_total_tokens=100_000)
    async with a_loop(redis):
        await stage.submit("first")
        assert await stage.receives("cold") == ["first"]  # now both are known, and what they hold is read next
        await stage.submit("a", spec=shared)
        assert await stage.receives("warm") == ["a"]


async def test_an_adapter_waits_for_a_worker_that_loaded_it(redis: Redis, stage: Stage) -> None:
    adapter = JobSpec(model="adapter", endpoint="/v1/completions", prompt_tokens=10, output_tokens=10)
    await run(redis, beat(stage.shard, Beat("base", "base", "active", 4, 10_000, REPORT, join=True, models=["m"])))
    async with a_loop(redis):
        waiting = await stage.submit("adapter", spec=adapter)
        await stage.submit("plain")
        assert await stage.receives("base") == ["plain"]
        assert (await stage.job(waiting)).state is State.QUEUED
        both = Beat("both", "both", "active", 4, 10_000, REPORT, join=True, models=["m", "adapter"])
        await run(redis, beat(stage.shard, both))
        assert await stage.receives("both") == ["adapter"]


async def test_a_worker_that_stands_by_takes_nothing(redis: Redis, stage: Stage) -> None:
    await stage.join("warm", state="warm")
    async with a_loop(redis):
        await stage.submit()
        await stage.join("late")
        assert await stage.receives("late") == ["a"]
        assert await stage.inbox("warm") == []
