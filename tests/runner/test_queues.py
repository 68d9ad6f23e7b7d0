"""arq's queue as we use it: JSON, one job a batch, and a lock that our lease may break."""

import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, tzinfo
from typing import Any, Self

import pytest
from arq import cron
from arq.connections import ArqRedis
from arq.worker import Worker

from protocol import keys, wire
from protocol.batches import BatchName
from tokenfleet.runner import queues

HOUR_S = 3_600
NAME = BatchName("t", "batch_1")
LOCK, JOB = "arq:in-progress:run:t:batch_1", "arq:job:run:t:batch_1"


@pytest.fixture
async def arq(redis_url: str) -> AsyncIterator[ArqRedis]:
    client = queues.connect(redis_url)
    yield client
    await client.aclose(close_connection_pool=True)


async def test_a_batch_is_queued_once_as_json(arq: ArqRedis) -> None:
    for _ in range(3):
        await queues.ask_to_run(arq, NAME)
    assert await arq.zcard(keys.BATCH_RUNS) == 1
    job = wire.loads(await arq.get(JOB))
    assert (job["f"], job["a"], job["k"]) == ("run", ["t:batch_1"], {})


async def test_the_lock_that_a_killed_runner_left_is_broken(arq: ArqRedis) -> None:
    """Killed before it took the batch even once: nothing but the lock tells of it, and it would last for a year."""
    await queues.ask_to_run(arq, NAME)
    await arq.psetex(LOCK, round(queues.LONGEST_RUN_S * 1000), "1")
    await queues.ask_to_run(arq, NAME)
    assert not await arq.exists(LOCK)
    assert await arq.zcard(keys.BATCH_RUNS) == 1


async def test_what_a_clock_that_is_ahead_has_queued_is_due(arq: ArqRedis) -> None:
    await queues.ask_to_run(arq, NAME)
    await arq.zadd(keys.BATCH_RUNS, {"run:t:batch_1": (time.time() + HOUR_S) * 1000})
    await queues.ask_to_run(arq, NAME)
    assert await arq.zrangebyscore(keys.BATCH_RUNS, "-inf", time.time() * 1000) == [b"run:t:batch_1"]


async def test_a_webhook_s_job_is_left_to_arq(arq: ArqRedis) -> None:
    for _ in range(2):
        await queues.ask_to_tell(arq, NAME)
    assert await arq.zcard(keys.BATCH_CALLS) == 1
    assert not await arq.exists(keys.BATCH_CHORES), "the sweep would wait behind a server that hangs"


@pytest.fixture
async def real(valkey_url: str) -> AsyncIterator[ArqRedis]:
    client = queues.connect(valkey_url)
    yield client
    await client.config_set("maxmemory", 0)
    await client.aclose(close_connection_pool=True)


async def test_a_full_redis_ends_no_worker(real: ArqRedis) -> None:
    """Its end would hand over what runs, and nobody would take results out: Redis would stay full."""
    worker = sweeping(real)
    await real.config_set("maxmemory", 1)
    await worker._poll_iteration()
    assert not await real.exists(keys.BATCH_CHORES)
    await real.config_set("maxmemory", 0)
    worker.cron_jobs[0].next_run = None
    await worker._poll_iteration()
    assert await real.exists(keys.BATCH_CHORES)


async def test_a_clock_that_is_set_back_stops_no_worker(real: ArqRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = sweeping(real)
    with monkeypatch.context() as clock:
        clock.setattr("arq.worker.time", lambda: time.time() + HOUR_S)
        clock.setattr("arq.worker.datetime", Ahead)
        await worker._poll_iteration()
    await real.delete(keys.BATCH_CHORES, f"{keys.BATCH_CHORES}:health-check")
    await worker._poll_iteration()
    assert await real.exists(keys.BATCH_CHORES), "no sweep would look for batches for an hour"
    assert await real.exists(f"{keys.BATCH_CHORES}:health-check"), "users would be told that no runner is there"


class Ahead(datetime):
    """A clock."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(seconds=HOUR_S)


def sweeping(redis: ArqRedis) -> Worker:
    async def sweep(_: dict[Any, Any]) -> None: ...

    each_second = set(range(60))
    return queues.chores(redis, [cron(sweep, name="cron:sweep", second=each_second, run_at_startup=True)])  # type: ignore[arg-type]  # arq wants a name of its own
