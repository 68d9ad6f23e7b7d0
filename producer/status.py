"""A look at the whole fleet: lanes, what is due or dead, workers with their load."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from redis.asyncio import Redis

from protocol import reads, watch
from protocol.call import Call, run, run_all, value_of
from protocol.errors import Unreadable
from protocol.handle import Shard
from protocol.messages import ModelRecord, WaitingJob, WorkerRecord
from protocol.outlook import Outlook, published
from protocol.states import Priority

T = TypeVar("T")
HEAD = 16
"""The oldest job of a lane is looked for among so many at its head."""
OUTLOOK_KEPT_MS = 10_000
"""An older outlook says nothing any more: the leading dispatcher renews it each second."""


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One lane of a shard."""

    priority: Priority
    depth: int
    oldest_wait_ms: int
    """Since its submission, or the end of its delay; 0 for an empty lane."""


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard of a pool."""

    shard: Shard
    models: tuple[str, ...]
    lanes: tuple[LaneStatus, ...]
    due: int
    """Delayed jobs and retries."""
    dead: int
    """Jobs set aside after three strikes."""
    workers: tuple[WorkerRecord, ...]
    outlook: Outlook | None = None
    """What its leading dispatcher published; None when nobody leads it now."""


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """All shards at one moment of Redis's clock."""

    now_ms: int
    shards: tuple[ShardStatus, ...]


def shards_of(models: dict[str, ModelRecord]) -> dict[Shard, tuple[str, ...]]:
    """Every shard of every pool, with the models that it serves."""
    shards: dict[Shard, tuple[str, ...]] = {}
    for model, record in sorted(models.items()):
        for number in range(record.shards):
            shard = Shard(record.pool, number)
            shards[shard] = (*shards.get(shard, ()), model)
    return shards


async def read_status(redis: Redis) -> FleetStatus:
    """Read everything anew.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    now_ms = await run(redis, reads.store_time_ms())
    shards = shards_of(await run(redis, reads.models()))
    return FleetStatus(now_ms, tuple([await _shard(redis, shard, models, now_ms) for shard, models in shards.items()]))


async def _shard(redis: Redis, shard: Shard, models: tuple[str, ...], now_ms: int) -> ShardStatus:
    depths = await _values(redis, [reads.lane_depth(shard, priority) for priority in Priority])
    due, dead = await _values(redis, [reads.due_count(shard), reads.dead_count(shard)])
    lanes = [
        LaneStatus(priority, depth, await _oldest_wait_ms(redis, shard, priority, now_ms))
        for priority, depth in zip(Priority, depths, strict=True)
    ]
    outlook = await run(redis, published(shard))
    fresh = outlook if outlook and now_ms - outlook.at_ms <= OUTLOOK_KEPT_MS else None
    return ShardStatus(shard, models, tuple(lanes), due, dead, await read_workers(redis, shard), fresh)


async def _oldest_wait_ms(redis: Redis, shard: Shard, priority: Priority, now_ms: int) -> int:
    head = await run(redis, watch.lane_members(shard, priority, HEAD))
    refs = [ref for member in head if (ref := watch.member_ref(member))]
    jobs = await run_all(redis, [reads.waiting_job(shard, ref) for ref in refs]) if refs else []
    return max((now_ms - job.since_ms for job in jobs if isinstance(job, WaitingJob)), default=0)


async def read_workers(redis: Redis, shard: Shard) -> tuple[WorkerRecord, ...]:
    """The workers of a shard, by label."""
    leases = await run(redis, reads.leases(shard))
    calls = [reads.worker_record(shard, worker, lease) for worker, lease in leases.items()]
    # One that can't be read hides no other.
    found = await run_all(redis, calls) if calls else []
    records = [value_of(record) for record in found if not isinstance(record, Unreadable)]
    return tuple(sorted((record for record in records if record), key=lambda record: (record.label, record.id)))


async def _values(redis: Redis, calls: Sequence[Call[T]]) -> list[T]:
    return [value_of(result) for result in await run_all(redis, calls)] if calls else []
