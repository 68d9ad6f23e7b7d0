"""All that a batch reads from Redis and deletes there, however long Redis is away."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.asyncio import Redis

from producer.batch.records import Todo
from protocol import functions, reads
from protocol.call import Call, patiently, run, run_all, value_of
from protocol.errors import Unreadable
from protocol.handle import Handle, Shard
from protocol.messages import DoneNotice, Outcome
from protocol.reads import JobTimes, Standing
from protocol.states import State
from protocol.store import BLOCK_MS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ended:
    """A row's job that ended, of which `notice` told, if any did."""

    handle: Handle
    attempt: int
    row: Todo
    notice: DoneNotice | None = None


class Results:
    """One batch's jobs in Redis."""

    def __init__(self, redis: Redis, tenant: str, batch_id: str) -> None:
        """The tenant's jobs whose ends are told to `batch_id`."""
        self._redis = redis
        self._tenant = tenant
        self.batch_id = batch_id
        self._seen: dict[Shard, str] = {}
        self._labels: dict[str, str] = {}

    async def notices(self, shards: Sequence[Shard], wait_ms: int | None = None) -> list[DoneNotice]:
        """Wait a second at most, or `wait_ms`, for jobs that ended."""
        last = [self._seen.get(shard, "0") for shard in shards]
        call = reads.done_after(shards, self._tenant, self.batch_id, last, wait_ms or BLOCK_MS)
        notices = await _insist(lambda: run(self._redis, call))
        self._seen |= {notice.handle.shard: notice.entry_id for notice in notices}
        return notices

    def rewind(self) -> None:
        """Tell of each end again that was not forgotten: whoever took it may have been broken off."""
        self._seen.clear()

    async def standings(self, handles: Sequence[Handle]) -> list[Standing | None]:
        """How jobs stand; None for a job that is gone, or that can't be read."""
        return await self._each([reads.standing(handle) for handle in handles])

    async def endings(self, ended: Sequence[Ended]) -> list[tuple[JobTimes | None, Outcome | None]]:
        """Times and outcomes; None for what is gone, or can't be read."""
        times: list[Call[Any]] = [reads.job_times(job.handle) for job in ended]
        found = await self._each(times + [reads.outcome(job.handle) for job in ended])
        pairs = zip(found[: len(ended)], found[len(ended) :], strict=True)
        return [
            (first if isinstance(first, JobTimes) else None, second if isinstance(second, Outcome) else None)
            for first, second in pairs
        ]

    async def labels(self, jobs: Sequence[tuple[Shard, JobTimes]]) -> dict[str, str]:
        """Worker id → label, for the workers of these jobs that are still there: a label is what people know."""
        workers = {(shard, times.worker) for shard, times in jobs}
        new = [(shard, worker) for shard, worker in workers if worker and worker not in self._labels]
        found = await self._each([reads.worker_record(shard, worker) for shard, worker in new])
        self._labels |= {worker: record.label for (_, worker), record in zip(new, found, strict=True) if record}
        return self._labels

    async def forget(self, ended: Sequence[Ended | DoneNotice]) -> set[str]:
        """Delete ended jobs and the notices that told of them; the ids of all but those that live or are another run.

        What was set aside stays, and so does what can't be read.
        """
        calls: list[Call[Any]] = [self._forgetting(job) for job in ended]
        done = await self._each(calls)
        return {job.handle.own_id for job, there in zip(ended, done, strict=True) if there is not False}

    async def withdraw(self, handles: Sequence[Handle]) -> list[State | None]:
        """Cancel jobs that nobody will collect; how each stood, None where Redis does not tell. Never waits for it.

        Raises:
            StoreUnavailable: Redis is away; the jobs expire.
        """
        states = await run_all(self._redis, [functions.cancel(handle) for handle in handles])
        return [state if isinstance(state, State) else None for state in states]

    def _forgetting(self, job: Ended | DoneNotice) -> Call[bool]:
        notice = job if isinstance(job, DoneNotice) else job.notice
        if notice is not None:
            return functions.forget_notice(self.batch_id, notice)
        return functions.forget(job.handle, job.attempt)

    async def _each(self, calls: Sequence[Call[T | None]]) -> list[T | None]:
        """What was written by hand concerns its own job alone."""

        async def attempt() -> list[T | None]:
            results = await run_all(self._redis, calls)
            return [None if isinstance(result, Unreadable) else value_of(result) for result in results]

        return await _insist(attempt) if calls else []


async def _insist(attempt: Callable[[], Awaitable[T]]) -> T:
    return await patiently(attempt, math.inf)
