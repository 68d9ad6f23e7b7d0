"""A batch beside chats, on real processes: it fills what they leave, and never stands in their way.

Judged by who starts before whom and by what has ended meanwhile, not by how long anything took.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from producer.batch.live import BatchRun
from producer.batch.reconcile import Reconciler
from producer.fleet import Fleet
from producer.jobs import Job, JobInfo
from producer.requests import JobRequest
from protocol import keys
from protocol.call import Call, run
from protocol.settings import Settings
from protocol.states import Priority, State
from tests.runner.conftest import requests
from tests.support.waiting import eventually
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

MODEL, WORKERS, SLOTS = "demo", 2, 4
LEFT = WORKERS * (SLOTS - 1)
"""So many rows run beside chats: a place on each worker is theirs."""
OFFLINE = pytest.mark.parametrize("priority", [Priority.MEDIUM, Priority.LOW])
"""What a batch may have; medium by default."""
MESSAGES = [{"role": "user", "content": "What is a token?"}]
ASKED = JobRequest(body={"model": MODEL, "messages": MESSAGES, "max_tokens": 8, "ignore_eos": True}, stream=True)


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedFleet]:
    async with EmbeddedFleet(FleetOptions(engine="sim", model=MODEL, workers=WORKERS, slots=SLOTS)) as fleet:
        await fleet.ready(60)
        yield fleet


@pytest.fixture
async def fleet(embedded: EmbeddedFleet) -> AsyncIterator[Fleet]:
    async with Fleet(settings=Settings(redis_url=embedded.redis_url)) as client:
        yield client


class Online:
    """Whoever chats with the fleet."""

    def __init__(self, fleet: Fleet, embedded: EmbeddedFleet) -> None:
        self._fleet, self._shard = fleet, embedded.shard

    async def starts(self) -> int:
        """How many jobs have been sent to workers so far."""
        return await run(self._fleet.redis, Call(("HGET", keys.clock(self._shard), "attempt"), int))

    async def chat(self) -> JobInfo:
        """One question, up to the end of its answer."""
        (job,) = await self._jobs(1)
        assert (await job.result(timeout=30)).state is State.COMPLETED
        return await job.info()

    async def crowd(self, count: int) -> int:
        """So many at once; how many rows started before the last of them did."""
        jobs = await self._jobs(count)
        before = await self.starts()
        last = max([(await job.result(timeout=30)).attempt for job in jobs])
        return max(0, last - before - count)

    async def _jobs(self, count: int) -> list[Job]:
        return [job for job in await self._fleet.submit_many([ASKED] * count) if isinstance(job, Job)]

    async def waiting(self, priority: Priority) -> int:
        """Rows that wait in their lane."""
        (shard,) = (await self._fleet.status()).shards
        return next(lane.depth for lane in shard.lanes if lane.priority is priority)


async def running(fleet: Fleet, embedded: EmbeddedFleet) -> int:
    """Jobs that the workers hold."""
    return sum(worker.held for shard in (await fleet.status()).shards for worker in shard.workers)


def proven(source: Path, target: Path) -> bool:
    """Whether each row has its one line."""
    return not list(Reconciler(source, [target]).findings())


def out(batch: BatchRun) -> int:
    """Rows that have ended."""
    return batch.progress.rows_out if batch.progress else 0


@OFFLINE
async def test_chats_start_at_once_though_no_row_ends(
    fleet: Fleet, embedded: EmbeddedFleet, tmp_path: Path, priority: Priority
) -> None:
    """The rows run for a minute: a chat that waited for the end of one would not be answered here."""
    online = Online(fleet, embedded)
    await online.chat()
    source = requests(tmp_path / "in.jsonl", 40, tokens=10_000)
    cancel = asyncio.Event()
    async with fleet.batches.run(source, tmp_path / "out.jsonl", priority=priority, cancel=cancel) as batch:

        async def full() -> bool:
            return await running(fleet, embedded) == LEFT

        await eventually(full, timeout_s=20)
        for _ in range(12):
            before = await online.starts()
            info = await online.chat()
            assert info.record.attempt == before + 1, "nobody started before it"
        assert (out(batch), await online.waiting(priority)) == (0, 40 - LEFT)
        cancel.set()
        summary = await batch.summary()
    assert (summary.state, summary.rows_unfinished) == ("cancelled", 40)
    assert proven(source, tmp_path / "out.jsonl")


@OFFLINE
async def test_a_batch_goes_on_beside_endless_chats(
    fleet: Fleet, embedded: EmbeddedFleet, tmp_path: Path, priority: Priority
) -> None:
    """Whoever chats passes the rows that wait; what the chats leave is enough for all rows to come to their end."""
    online, rows, overtook = Online(fleet, embedded), 60, 0
    await online.chat()
    source, target = requests(tmp_path / "in.jsonl", rows, tokens=50), tmp_path / "out.jsonl"
    async with asyncio.timeout(60), fleet.batches.run(source, target, priority=priority) as batch:
        done = asyncio.create_task(batch.summary())
        while not done.done():
            waiting, passed_by = await online.waiting(priority), await online.crowd(3)
            if waiting > 3 * LEFT:
                # A round that was under way could not see them, and who waits for the better worker lets rows pass.
                assert passed_by <= 2 * LEFT
                overtook += 1
        summary = await done
    assert overtook > 1
    assert (summary.state, summary.rows_out, summary.rows_failed) == ("completed", rows, 0)
    assert proven(source, target)
