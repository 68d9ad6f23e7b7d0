"""Jobs that were set aside: what they are, and how it came to that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from redis.asyncio import Redis

from producer.scope import ALL, Scope
from producer.status import shards_of
from protocol import reads
from protocol.call import run, run_all, value_of
from protocol.errors import FleetError, NotDead, Unreadable
from protocol.handle import Handle, Shard
from protocol.messages import JobRecord, Outcome

T = TypeVar("T")
PAGE = 100
"""So many entries of a shard are read at once."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A job that was set aside; the record is None when its description can't be read."""

    handle: Handle
    at_ms: int
    """When, in Redis's time."""
    record: JobRecord | None

    @property
    def code(self) -> str:
        """Why: `struck_out` after three strikes, `malformed` when it can't be read."""
        return self.record.error if self.record else "malformed"


@dataclass(frozen=True, slots=True)
class DeadInfo:
    """A whole look at a job that was set aside."""

    job: SetAside
    outcome: Outcome | None
    body: bytes | None
    """The request; read only when asked for."""


async def list_dead(redis: Redis, *, pool: str = "", limit: int = 50, scope: Scope = ALL) -> list[SetAside]:
    """Jobs that were set aside and not replayed since, the last one first.

    Args:
        redis: where the fleet is.
        pool: only this pool's; empty for all.
        limit: so many at most.
        scope: only those that it holds.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    shards = [shard for shard in shards_of(await run(redis, reads.models())) if pool in ("", shard.pool)]
    found = [job for shard in shards for job in await _of_shard(redis, shard, limit, scope)]
    return sorted(found, key=lambda job: job.at_ms, reverse=True)[:limit]


async def _of_shard(redis: Redis, shard: Shard, limit: int, scope: Scope) -> list[SetAside]:
    found: list[SetAside] = []
    before = "+"
    while len(found) < limit:
        page = await run(redis, reads.dead_entries(shard, PAGE, before))
        entries = [entry for entry in page if scope.holds(entry.handle)]
        marks = await run_all(redis, [reads.dead_mark(entry.handle) for entry in entries]) if entries else []
        # The stream is trimmed in blocks: an entry outlives its job by a little.
        lasting = [entry for entry, mark in zip(entries, marks, strict=True) if _readable(mark) == entry.entry_id]
        found += await _set_aside(redis, [(entry.handle, entry.at_ms) for entry in lasting[: limit - len(found)]])
        if len(page) < PAGE:
            break
        before = page[-1].entry_id
    return found


async def _set_aside(redis: Redis, jobs: Sequence[tuple[Handle, int]]) -> list[SetAside]:
    """In one round trip; what was written by hand, or by a version that is gone, is shown all the same."""
    records = await run_all(redis, [reads.job_record(handle) for handle, _ in jobs]) if jobs else []
    return [SetAside(handle, at_ms, _readable(record)) for (handle, at_ms), record in zip(jobs, records, strict=True)]


def _readable(result: T | FleetError) -> T | None:
    """The value; None for what was written by hand."""
    return None if isinstance(result, Unreadable) else value_of(result)


async def read_dead(redis: Redis, handle: Handle, *, body: bool = False) -> DeadInfo:
    """A job that was set aside: its record with its history, its error and, when asked for, its request.

    Raises:
        NotDead: no such job is set aside.
        StoreUnavailable: Redis does not answer.
    """
    mark = await run(redis, reads.dead_mark(handle))
    if not mark:
        raise NotDead("no such job is set aside", "tokenfleet dead list shows those that are.")
    (job,) = await _set_aside(redis, [(handle, int(mark.partition("-")[0]))])
    outcome = await run(redis, reads.outcome(handle))
    stored = await run(redis, reads.stored_body(handle)) if body else None
    return DeadInfo(job, outcome, stored)
