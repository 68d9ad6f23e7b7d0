"""One leader a shard: standbys, takeovers, fencing."""

import asyncio

from redis.asyncio import Redis

from protocol import keys
from protocol.states import State
from tests.scheduler.stage import QUICK, Stage, a_loop
from tests.support.builders import SHARD


async def test_a_standby_takes_over_from_a_leader_that_was_killed(redis: Redis, stage: Stage) -> None:
    await stage.join()
    async with a_loop(redis) as first:
        await first.leads()
        async with a_loop(redis) as second:
            clock = asyncio.get_running_loop()
            await first.kill()
            killed_at = clock.time()
            await stage.submit()
            await second.leads()
            assert clock.time() - killed_at < QUICK.lead_s + QUICK.tick_s + 0.3
            assert await stage.receives() == ["a"]


async def test_only_one_of_two_leads(redis: Redis, stage: Stage) -> None:
    async with a_loop(redis) as first:
        await first.leads()
        async with a_loop(redis) as second:
            await stage.join()
            await stage.submit()
            await stage.receives()
            assert (first.loop.leads, second.loop.leads) == (True, False)


async def test_a_leader_that_lost_the_lead_moves_nothing(redis: Redis, stage: Stage) -> None:
    slow = QUICK.model_copy(update={"tick_s": 60.0, "lead_s": 120.0})
    async with a_loop(redis, slow) as loop:
        await loop.leads()
        await redis.set(keys.leader(SHARD), "another", px=60_000)
        await stage.join()
        job = await stage.submit()
        await loop.stands_by()
        assert (await stage.job(job)).state is State.QUEUED


async def test_a_leader_that_resigns_leaves_the_lead_free(redis: Redis) -> None:
    patient = QUICK.model_copy(update={"lead_s": 60.0})
    async with a_loop(redis, patient) as first:
        await first.leads()
        async with a_loop(redis, patient) as second:
            await first.kill()
            await first.loop.resign()
            await second.leads()
