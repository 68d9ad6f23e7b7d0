"""A result that is deleted once it was read: only after it is in its reader's hands."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from producer import reader
from producer.fleet import Fleet
from protocol.call import run
from protocol.errors import UnknownJob
from protocol.states import State
from tests.producer.tiny import MODEL, TinyWorker

TIMEOUT_S = 0.3


@pytest.fixture
def slow_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgetting takes longer than the reader's time limit."""

    async def late(redis: Redis, call: Any) -> Any:
        if "tf1_forget" in call.command:
            passed = asyncio.Event()
            asyncio.get_running_loop().call_later(2 * TIMEOUT_S, passed.set)
            await passed.wait()
        return await run(redis, call)

    monkeypatch.setattr(reader, "run", late)


@pytest.mark.usefixtures("slow_to_forget")
async def test_a_time_limit_that_ends_while_a_job_is_forgotten_loses_no_result(
    fleet: Fleet, worker: TinyWorker
) -> None:
    job = await fleet.submit(model=MODEL, prompt="x", delete_on_read=True)
    await fleet.cancel(job)
    assert (await job.result(timeout=TIMEOUT_S)).state is State.CANCELLED
    with pytest.raises(UnknownJob):
        await job.result(timeout=TIMEOUT_S)
