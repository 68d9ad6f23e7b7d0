"""What breaks around the dispatcher, and that it goes on."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from protocol import keys, library, reads, store
from protocol.call import run
from protocol.errors import FleetError
from protocol.states import Priority, State
from scheduler.policy.least_work import LeastWork
from scheduler.policy.policy import Fleet
from scheduler.policy.view import HEADS, Chance, JobView
from scheduler.policy.worker import Worker
from tests.conftest import Backend
from tests.scheduler.stage import QUICK, Stage, a_loop
from tests.support.builders import SHARD
from tests.support.servers import Server
from tests.support.waiting import eventually

HIGH = keys.lane(SHARD, Priority.HIGH)


async def test_the_jobs_of_a_worker_that_lapses_go_to_another(redis: Redis, stage: Stage) -> None:
    async with a_loop(redis) as loop:
        await loop.leads()
        await stage.join("dying", lease_ms=400)
        job = await stage.submit()
        await stage.receives("dying")
        await stage.join("heir")
        assert await stage.receives("heir") == ["a"]
        assert (await stage.job(job)).attempt == 2


async def test_a_worker_that_lapses_with_a_full_inbox_is_emptied_at_once(redis: Redis, stage: Stage) -> None:
    async with a_loop(redis, QUICK.model_copy(update={"tick_s": 0.5})) as loop:
        await loop.leads()
        for number in range(250):
            await stage.submit(f"{number}")
        await stage.join("dying", slots=250, lease_ms=60_000)
        await stage.receives("dying", 250, timeout_s=30)
        await stage.write("ZADD", keys.workers(stage.shard), "XX", 1, "dying")  # its lease is over
        await stage.waiting(250)


@pytest.mark.parametrize(
    "member",
    [b"0000000000000000:t:ghost", b"0000000000000000:nobody", b"no entry", b"\xff\xfe"],
    ids=["no-job", "no-tenant", "no-name", "no-text"],
)
async def test_an_entry_without_a_job_is_removed(redis: Redis, stage: Stage, member: bytes) -> None:
    await stage.write("ZADD", HIGH, -1, member)
    await stage.join()
    await stage.submit()
    async with a_loop(redis):
        assert await stage.receives() == ["a"]
        await stage.waiting(0)


async def test_entries_without_jobs_do_not_hide_the_lane(redis: Redis, stage: Stage) -> None:
    for number in range(2 * HEADS):
        await stage.write("ZADD", HIGH, -1, f"{number:016}:t:ghost-{number}")
    await stage.join()
    await stage.submit()
    async with a_loop(redis):
        assert await stage.receives() == ["a"]


@pytest.mark.parametrize("field", ["spec", "submitted"])
async def test_a_job_that_cannot_be_read_is_set_aside(redis: Redis, stage: Stage, field: str) -> None:
    broken = await stage.submit("broken")
    await stage.write("HSET", keys.job(broken), field, "{")
    await stage.submit("b")
    await stage.join()
    async with a_loop(redis):
        assert await stage.receives() == ["b"]
        outcome = await eventually(lambda: run(redis, reads.outcome(broken)))
        assert outcome
        assert outcome.error
        assert outcome.error.code == "malformed"
        assert await run(redis, reads.dead_count(SHARD)) == 1


async def test_a_key_of_another_type_stops_nobody(valkey: Redis) -> None:
    # Not on fakeredis, whose `redis.pcall` trips over this error.
    stage = Stage(valkey)
    broken = await stage.submit("broken")
    await stage.write("SET", keys.job(broken), "no hash", "PX", 60_000)
    await stage.submit("b")
    await stage.join()
    async with a_loop(valkey):
        assert await stage.receives() == ["b"]
        await stage.waiting(0)
    await stage.write("DEL", keys.job(broken), keys.body(broken))


async def test_a_worker_that_cannot_be_read_takes_nothing_and_stops_nobody(redis: Redis, stage: Stage) -> None:
    await stage.join("broken")
    await stage.write("HSET", keys.worker(SHARD, "broken"), "slots", "many")
    await stage.join("good")
    await stage.submit()
    async with a_loop(redis):
        assert await stage.receives("good") == ["a"]


async def test_a_worker_whose_report_cannot_be_read_goes_on(redis: Redis, stage: Stage) -> None:
    await stage.join()
    await stage.write("HSET", keys.worker(SHARD, "w1"), "report", "{")
    await stage.submit()
    async with a_loop(redis):
        assert await stage.receives() == ["a"]


async def test_a_flushed_function_library_is_loaded_again(backend: Backend, redis: Redis, stage: Stage) -> None:
    await stage.join()
    async with a_loop(redis) as loop:
        await loop.leads()
        backend.sync.function_flush()
        await eventually(lambda: library.is_loaded(redis))
        await stage.submit()
        assert await stage.receives() == ["a"]


class Stumbling(LeastWork):
    """Fails the first time."""

    def __init__(self) -> None:
        self.asked = 0

    def pick(self, job: JobView, candidates: Sequence[Worker], fleet: Fleet, rng: Chance) -> Worker:
        self.asked += 1
        if self.asked == 1:
            raise ZeroDivisionError
        return super().pick(job, candidates, fleet, rng)


async def test_a_round_that_crashes_is_tried_again(redis: Redis, stage: Stage) -> None:
    policy = Stumbling()
    await stage.join()
    await stage.submit()
    async with a_loop(redis, change=lambda rules: replace(rules, policy=policy)):
        assert await stage.receives() == ["a"]
        assert policy.asked == 2


async def test_a_server_that_is_killed_and_restarted(server: Server) -> None:
    redis = store.connect(server.url)
    stage = Stage(redis)
    async with a_loop(redis) as loop:
        await loop.leads()
        before = await stage.submit("before")
        server.kill()
        with pytest.raises(FleetError):
            await stage.submit("meanwhile")
        server.start()
        await stage.submit("after")
        await stage.join()
        assert await stage.receives(count=2) == ["before", "after"]
        assert (await stage.job(before)).state is State.ASSIGNED
    await redis.aclose()
