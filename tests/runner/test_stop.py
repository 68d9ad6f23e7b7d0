"""A runner that is stopped ends, also where its queue's poll does not hear of it at first."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from arq import func
from arq.connections import ArqRedis

from protocol.batches import BatchName
from tokenfleet.runner import queues, service

DEAF = 3
"""So many cancellations the poll swallows."""


@pytest.fixture
async def arq(valkey_url: str) -> AsyncIterator[ArqRedis]:
    client = queues.connect(valkey_url)
    yield client
    await client.aclose(close_connection_pool=True)


async def test_a_stop_that_the_poll_swallows_is_repeated_and_the_job_hands_over_once(
    arq: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Python 3.12 redis-py swallows one that comes with a reply."""
    monkeypatch.setattr(service, "AGAIN_S", 0.01)
    running, polling, heard, told = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[str]()

    async def job(_: dict[Any, Any], ref: str) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append(f"handing over {ref}")
            await heard.wait()
            told.append("handed over")

    worker = queues.runs(arq, func(job, name=queues.RUN), 2)  # type: ignore[arg-type]  # arq wants a name of its own
    poll, swallowed = worker._poll_iteration, list[int]()

    async def deaf() -> None:
        await poll()
        while running.is_set():
            polling.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if len(swallowed) == DEAF:
                    heard.set()
                    raise
                swallowed.append(1)

    monkeypatch.setattr(worker, "_poll_iteration", deaf)
    await queues.ask_to_run(arq, BatchName("t", "batch_1"))
    working = asyncio.create_task(service._work([worker]))
    async with asyncio.timeout(10):
        await polling.wait()
    working.cancel()
    await asyncio.wait({working}, timeout=5)
    assert working.cancelled()
    assert told == ["handing over t:batch_1", "handed over"]
    assert queues.living(worker) == []
