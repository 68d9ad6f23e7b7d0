"""A shard on a stage: a running loop, jobs from a producer's calls, workers that do what a test tells them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from redis.asyncio import Redis

from protocol import reads
from protocol.call import Call, run
from protocol.functions import finish, register, start, submit
from protocol.handle import Handle, Shard
from protocol.log import get_logger
from protocol.messages import InboxEntry, JobRecord, JobSpec, ModelRecord
from protocol.settings import Settings
from protocol.states import Priority, State
from scheduler.metrics import Metrics
from scheduler.outage import Outage
from scheduler.record import Recording
from scheduler.rules import Rules, rules_of
from scheduler.shard_loop import ShardLoop
from tests.support.builders import SHARD, a_submission, completed, join_worker
from tests.support.waiting import eventually

QUICK = Settings(tick_s=0.05, lead_s=0.5, lease_s=10, target_high_s=60)
"""Short times, so that takeovers and ripening are soon seen; and a target that no slow machine makes jobs miss."""

LARGE = JobSpec(model="m", endpoint="/v1/completions", prompt_tokens=900, output_tokens=100)
"""Too large for a worker whose KV cache holds 500 tokens."""


@dataclass(frozen=True)
class Loop:
    """A loop under way; `kill` stops it as a crash would: it gives nothing up."""

    loop: ShardLoop
    task: asyncio.Task[None]

    async def leads(self) -> None:
        await eventually(lambda: self.loop.leads)

    async def stands_by(self) -> None:
        await eventually(lambda: not self.loop.leads)

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@asynccontextmanager
async def a_loop(
    redis: Redis,
    settings: Settings = QUICK,
    *,
    change: Callable[[Rules], Rules] = lambda rules: rules,
    recording: Recording | None = None,
    metrics: Metrics | None = None,
) -> AsyncIterator[Loop]:
    """Runs for the length of the block."""
    loop = ShardLoop(redis, SHARD, change(rules_of(settings)), Outage(get_logger("test")), recording, metrics)
    running = Loop(loop, asyncio.create_task(loop.run()))
    try:
        yield running
    finally:
        await running.kill()


@dataclass(frozen=True)
class Stage:
    """The calls that the tests make beside the scheduler."""

    redis: Redis
    shard: Shard = SHARD

    async def register(self, pool: str, shards: int = 1) -> None:
        await run(self.redis, register(f"model-of-{pool}", ModelRecord(pool=pool, shards=shards)))

    async def submit(self, own_id: str = "a", **changes: Any) -> Handle:
        job = a_submission(own_id, shard=self.shard, **changes)
        await run(self.redis, submit(job))
        return job.handle

    async def job(self, handle: Handle) -> JobRecord:
        record = await run(self.redis, reads.job_record(handle))
        assert record is not None
        return record

    async def becomes(self, handle: Handle, state: State) -> JobRecord:
        """Wait until the job is there."""

        async def there() -> JobRecord:
            record = await self.job(handle)
            assert record.state is state, f"{handle} is {record.state}"
            return record

        return await eventually(there)

    async def waiting(self, count: int, timeout_s: float = 5) -> None:
        """Wait until `count` jobs are left in the `high` lane."""

        async def there() -> bool:
            depth = await run(self.redis, reads.lane_depth(self.shard, Priority.HIGH))
            assert depth == count, f"{depth} wait"
            return True

        await eventually(there, timeout_s)

    async def write(self, *command: str | int | bytes) -> None:
        """What somebody does by hand."""
        await run(self.redis, Call(command, bool))

    async def join(self, worker: str = "w1", slots: int = 4, **changes: Any) -> None:
        assert await run(self.redis, join_worker(worker, slots, shard=self.shard, **changes)) is not None

    async def inbox(self, worker: str = "w1") -> list[InboxEntry]:
        return await run(self.redis, reads.inbox_after(self.shard, worker, "0", 1))

    async def receives(self, worker: str = "w1", count: int = 1, timeout_s: float = 5) -> list[str]:
        """Wait until the worker holds `count` jobs; their own ids, in order."""

        async def there() -> list[str]:
            held = await self.inbox(worker)
            assert len(held) == count, f"{worker} holds {[entry.ref for entry in held]}"
            return [entry.ref.partition(":")[2] for entry in held]

        return await eventually(there, timeout_s)

    async def end(self, worker: str = "w1") -> None:
        """The worker starts and finishes all that it holds."""
        for entry in await self.inbox(worker):
            handle = Handle.of(self.shard, entry.ref)
            assert await run(self.redis, start(handle, entry.attempt, worker))
            reply = await run(self.redis, finish(completed(handle, entry.attempt, worker)))
            assert reply.accepted

    def on(self, shard: Shard) -> "Stage":
        return replace(self, shard=shard)
