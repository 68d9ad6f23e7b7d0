"""All that a batch reads from Redis and deletes there, however long Redis is away."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from redis.asyncio import Redis

from protocol import functions, reads
from protocol.call import Call, patiently, run, run_all, value_of
from protocol.errors import Unreadable
from protocol.handle import Handle, Shard
from protocol.messages import DoneNotice, JobRecord, Outcome
from protocol.reads import Standing
from protocol.store import BLOCK_MS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended, of which `notice` told, if any did."""

    handle: Handle
    attempt: int
    notice: DoneNotice | None = None


class Results:
    """One batch's jobs in Redis."""

    def __init__(self, redis: Redis, tenant: str, batch_id: str) -> None:
        """The tenant's jobs whose ends are told to `batch_id`."""
        self._redis = redis
        self._tenant = tenant
        self._batch_id = batch_id
        self._seen: dict[Shard, str] = {}
        self._labels: dict[str, str] = {}

    async def notices(self, shards: Sequence[Shard]) -> list[DoneNotice]:
        """Wait a second at most for jobs that ended."""
        last = [self._seen.get(shard, "0") for shard in shards]
        call = reads.done_after(shards, self._tenant, self._batch_id, last, BLOCK_MS)
        notices = await _insist(lambda: run(self._redis, call))
        self._seen |= {notice.handle.shard: notice.entry_id for notice in notices}
        return notices

    async def standings(self, handles: Sequence[Handle]) -> list[Standing | None]:
        """How jobs stand; None for a job that is gone, or that can't be read."""
        return await self._each([reads.standing(handle) for handle in handles])

    async def outcomes(self, ended: Sequence[Ended]) -> list[tuple[JobRecord, Outcome] | None]:
        """Records and outcomes; None for a job that is gone, or that can't be read."""
        records = await self._each([reads.job_record(job.handle) for job in ended])
        outcomes = await self._each([reads.outcome(job.handle) for job in ended])
        pairs = zip(records, outcomes, strict=True)
        return [(record, outcome) if record and outcome else None for record, outcome in pairs]

    async def labels(self, jobs: Sequence[tuple[Shard, JobRecord]]) -> dict[str, str]:
        """Worker id → label, for the workers of these jobs that are still there: a label is what people know."""
        workers = dict.fromkeys((shard, job.worker) for shard, job in jobs)
        new = [(shard, worker) for shard, worker in workers if worker and worker not in self._labels]
        found = await self._each([reads.worker_record(shard, worker) for shard, worker in new])
        self._labels |= {worker: record.label for (_, worker), record in zip(new, found, strict=True) if record}
        return self._labels

    async def forget(self, ended: Sequence[Ended]) -> None:
        """Delete ended jobs and the notices that told of them."""
        await self._all([self._forgetting(job) for job in ended])

    async def withdraw(self, handles: Sequence[Handle]) -> None:
        """Cancel jobs that nobody will collect; one that can't be reached expires."""
        await run_all(self._redis, [functions.cancel(handle) for handle in handles])

    def _forgetting(self, job: Ended) -> Call[bool]:
        if job.notice is not None:
            return functions.forget_notice(self._batch_id, job.notice)
        return functions.forget(job.handle, job.attempt)

    async def _each(self, calls: Sequence[Call[T | None]]) -> list[T | None]:
        """What was written by hand concerns its own job alone."""

        async def attempt() -> list[T | None]:
            results = await run_all(self._redis, calls)
            return [None if isinstance(result, Unreadable) else value_of(result) for result in results]

        return await _insist(attempt) if calls else []

    async def _all(self, calls: Sequence[Call[T]]) -> list[T]:
        async def attempt() -> list[T]:
            return [value_of(result) for result in await run_all(self._redis, calls)]

        return await _insist(attempt) if calls else []


async def _insist(attempt: Callable[[], Awaitable[T]]) -> T:
    return await patiently(attempt, math.inf)
