"""kill -9 of a worker and of the scheduler, on real processes: nothing is lost, nothing is doubled."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from producer.events import Restart, Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from protocol.states import State
from tests.support.waiting import eventually
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

MODEL = "demo"
SLOW = 0.5
"""Simulated engine speed: a job of 200 tokens takes seconds."""


@pytest.fixture
async def embedded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbeddedFleet]:
    monkeypatch.setenv("TOKENFLEET_LEASE_S", "2")
    async with EmbeddedFleet(FleetOptions(engine="sim", model=MODEL, sim_speed=SLOW)) as fleet:
        await fleet.ready(60)
        yield fleet


async def read(fleet: Fleet, job: Job) -> tuple[str, int]:
    """The text that a follower ends up with, and how often it began anew."""
    text, restarts = "", 0
    async for event in fleet.follow(job):
        if isinstance(event, Restart):
            text, restarts = "", restarts + 1
        elif isinstance(event, Tokens):
            text += event.text
    return text, restarts


async def struck(jobs: list[Job]) -> bool:
    """Whether the dead worker's jobs were taken back."""
    return any([(await job.info()).record.strikes for job in jobs])


async def test_a_killed_worker_and_a_killed_scheduler_lose_nothing(embedded: EmbeddedFleet) -> None:
    async with Fleet(embedded.redis_url) as fleet:
        jobs = [await fleet.submit(model=MODEL, prompt=f"job {n}", stream=True, max_tokens=200) for n in range(12)]
        readers = [asyncio.create_task(read(fleet, job)) for job in jobs]

        async def all_slots_busy() -> bool:
            """And told so: who dies before it was heard by the first dispatcher is blamed for nothing."""
            workers = [worker for shard in (await fleet.status()).shards for worker in shard.workers]
            return [worker.report.running for worker in workers] == [4, 4]

        await eventually(all_slots_busy, timeout_s=20)
        embedded.process("worker-1").kill()
        # Or the new scheduler, which finds that nobody led for a while, would blame nobody.
        await eventually(lambda: struck(jobs), timeout_s=20)
        embedded.process("scheduler").kill()

        outcomes = [await job.result(timeout=60) for job in jobs]
        assert {outcome.state for outcome in outcomes} == {State.COMPLETED}
        texts = await asyncio.gather(*readers)
        assert [text for text, _ in texts] == [outcome.text for outcome in outcomes]
        records = [(await job.info()).record for job in jobs]
        assert 1 <= sum(record.strikes for record in records) <= 4
        assert all(record.strikes <= 1 for record in records)
