"""arq's queue as we use it: JSON, one job a batch, and a lock that our lease may break."""

from collections.abc import AsyncIterator

import pytest
from arq.connections import ArqRedis

from protocol import keys, wire
from protocol.batches import BatchName
from tokenfleet.runner import queues

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


async def test_a_webhook_s_job_is_left_to_arq(arq: ArqRedis) -> None:
    for _ in range(2):
        await queues.ask_to_tell(arq, NAME)
    assert await arq.zcard(keys.BATCH_CALLS) == 1
    assert not await arq.exists(keys.BATCH_CHORES), "the sweep would wait behind a server that hangs"
