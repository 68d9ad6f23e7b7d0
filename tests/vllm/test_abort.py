"""However a job ends while it runs, its place on the engine is free within a second."""

import asyncio
from typing import Any

import pytest

from bench.vllm_env.models import TINY
from producer.fleet import Fleet
from producer.jobs import Job
from protocol import keys
from protocol.functions import TickTimes, cancel, tick
from protocol.handle import Shard
from protocol.states import State
from tests.support.builders import LIMITS
from tests.vllm.site import Site, Staff
from tests.vllm.straight import Straight

pytestmark = pytest.mark.vllm

FREE_S = 1.0


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def begun(fleet: Fleet, engine: Straight, **how: Any) -> Job:
    """A job that runs for many seconds."""
    job = await fleet.submit(model=TINY, prompt="long", max_tokens=2_400, ignore_eos=True, stream=True, **how)
    await engine.works()
    return job


async def test_cancelled(fleet: Fleet, tiny_straight: Straight) -> None:
    job = await begun(fleet, tiny_straight)
    since_s = now_s()
    assert await job.cancel() is State.RUNNING
    assert await tiny_straight.idle_s(since_s) < FREE_S
    assert (await job.result(10)).state is State.CANCELLED


async def test_deadline_passed(fleet: Fleet, tiny_straight: Straight) -> None:
    deadline_s = 1.5
    since_s = now_s() + deadline_s
    job = await begun(fleet, tiny_straight, deadline=deadline_s)
    assert await tiny_straight.idle_s(since_s) < FREE_S
    assert (await job.result(10)).state is State.EXPIRED


async def test_follower_gone(fleet: Fleet, tiny_straight: Straight) -> None:
    patience_s = 0.5
    job = await begun(fleet, tiny_straight, cancel_unfollowed=patience_s)
    events = job.follow()
    await anext(events)
    since_s = now_s() + patience_s
    await events.aclose()
    assert await tiny_straight.idle_s(since_s) < FREE_S
    outcome = await job.result(10)
    assert outcome.state is State.CANCELLED
    assert outcome.error
    assert outcome.error.code == "unfollowed"


async def test_lease_lost(site: Site, fleet: Fleet, tiny: Staff, tiny_straight: Straight) -> None:
    job = await begun(fleet, tiny_straight)
    worker = await tiny.reaches(fleet, "active")
    since_s = now_s()
    reclaim(site, worker.shard, worker.record.id, job)
    assert await tiny_straight.idle_s(since_s) < FREE_S
    assert (await job.result(10)).state is State.CANCELLED
    again = await tiny.reaches(fleet, "active")
    assert again.record.id != worker.record.id


def reclaim(site: Site, shard: Shard, worker: str, job: Job) -> None:
    """The worker's lease ends now; the leader notices before any beat, and the job ends before it runs anew."""
    with site.server.client() as redis:
        token = redis.get(keys.leader(shard))
        assert isinstance(token, bytes)
        lapse = tick(shard, token.decode(), TickTimes(), LIMITS)
        steps = redis.pipeline(transaction=True)
        steps.zadd(keys.workers(shard), {worker: 1})
        for call in (lapse, cancel(job.handle)):
            steps.execute_command(*call.command)
        _, ticked, _ = steps.execute()
        assert lapse.parse(ticked).reclaimed == 1
