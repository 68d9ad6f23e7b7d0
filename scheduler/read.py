"""Reads one shard in one round trip, or two: for jobs that no hint named, workers or prefixes not seen before."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any

from redis.asyncio import Redis

from protocol import reads, watch
from protocol.call import Call, run_all, value_of
from protocol.errors import FleetError, StoreUnavailable, Unreadable
from protocol.functions import wake
from protocol.handle import Shard
from protocol.messages import WaitingJob
from protocol.states import Priority
from protocol.watch import WorkerNow
from scheduler.policy.prefix_map import PrefixMap
from scheduler.policy.view import HEADS, JobView
from scheduler.prefixes import Prefixes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One shard at one moment.

    Attributes:
        now_ms: Redis's time.
        lanes: the first jobs of each lane, in its order.
        more: a lane may hold more jobs than were read.
        unreadable: entries of lanes behind which stands no job that can be read.
        leases: worker id → end of its lease in ms; 0 while it is being reclaimed.
        workers: what each leased worker's hash says; one that can't be read is left out.
        seen_s: `now_ms` by `time.monotonic`: uvloop's own clock tells whole milliseconds.
        leads: False when another leads: whoever read this may move nothing.
    """

    now_ms: float
    lanes: tuple[tuple[JobView, ...], ...]
    more: bool
    unreadable: tuple[bytes, ...]
    leases: Mapping[str, int]
    workers: Mapping[str, WorkerNow]
    seen_s: float = 0.0
    leads: bool = True


@dataclass(frozen=True, slots=True)
class _Sight:
    """What the first round trip tells."""

    leads: bool
    now_ms: int
    leases: dict[str, int]
    heads: dict[Priority, list[bytes]]
    workers: dict[str, WorkerNow]
    jobs: dict[str, WaitingJob | FleetError | None]
    """Those that were asked for by name, as they are or not."""


class Reader:
    """Keeps what it has parsed: a job's description by its entry in the lane, a worker's report by its time.

    A worker's prefixes are kept in `prefix_map`, and read when their version changes. Who only looks on has no leader's
    `token`, and clears no hint.
    """

    def __init__(self, redis: Redis, shard: Shard, prefix_map: PrefixMap, token: str = "") -> None:
        self._redis, self._shard, self._map = redis, shard, prefix_map
        self._hint: list[Call[Any]] = [wake(shard, token)] if token else []
        self._jobs: dict[bytes, JobView | None] = {}
        self._workers: dict[str, WorkerNow] = {}
        self._prefixes = Prefixes(prefix_map)

    async def read(self, hinted: str = "") -> Snapshot:
        """Clear the hint, then read; a job that was `hinted` is read in the first round trip.

        Raises:
            FleetError: Redis does not answer, or lacks the function library.
        """
        sight = await self._look(hinted)
        loop = asyncio.get_running_loop()
        seen_at = loop.time()
        await self._fill_in(sight)
        elapsed_ms = (loop.time() - seen_at) * 1000
        lanes = tuple(tuple(filter(None, map(self._jobs.get, members))) for members in sight.heads.values())
        return Snapshot(
            now_ms=sight.now_ms + elapsed_ms,
            lanes=lanes,
            more=any(len(members) == HEADS for members in sight.heads.values()),
            unreadable=tuple(member for member, job in self._jobs.items() if job is None),
            leases=sight.leases,
            workers=self._workers,
            seen_s=monotonic(),
            leads=sight.leads,
        )

    def forget(self, members: Sequence[str]) -> None:
        """These entries were moved; should they come back, their jobs may have changed."""
        for member in members:
            self._jobs.pop(member.encode(), None)

    def forget_all(self) -> None:
        """Others may have moved anything."""
        self._jobs.clear()
        self._workers.clear()
        self._prefixes = Prefixes(self._map)

    async def _look(self, hinted: str) -> _Sight:
        shard, known = self._shard, list(self._workers.items())
        calls: list[Call[Any]] = [*self._hint, reads.store_time_ms(), reads.leases(shard)]
        calls += (watch.lane_members(shard, priority, HEADS) for priority in Priority)
        calls += (watch.worker_now(shard, worker, before) for worker, before in known)
        calls += [reads.waiting_job(shard, hinted)] if hinted else []
        replies = await run_all(self._redis, calls)
        jobs = {hinted: replies.pop()} if hinted else {}
        leads = all(value_of(cleared) for cleared in replies[: len(self._hint)])
        now_ms, leases, *rest = replies[len(self._hint) :]
        heads, workers = rest[: len(Priority)], rest[len(Priority) :]
        return _Sight(
            leads=leads,
            now_ms=value_of(now_ms),
            leases=value_of(leases),
            heads={priority: value_of(members) for priority, members in zip(Priority, heads, strict=True)},
            workers=_readable([worker for worker, _ in known], workers),
            jobs=jobs,
        )

    async def _fill_in(self, sight: _Sight) -> None:
        """Read what is new, and forget what is no longer in sight."""
        before, self._jobs = self._jobs, {}
        new_jobs: list[tuple[bytes, str, Priority]] = []
        for priority, members in sight.heads.items():
            for member in members:
                if member in before:
                    self._jobs[member] = before[member]
                elif (ref := watch.member_ref(member)) in sight.jobs:
                    self._learn(member, ref, priority, sight.jobs[ref])
                elif ref:
                    new_jobs.append((member, ref, priority))
                else:
                    self._jobs[member] = None
        new_workers = [worker for worker in sight.leases if worker not in sight.workers]
        self._workers = {worker: now for worker, now in sight.workers.items() if worker in sight.leases}
        now_s = asyncio.get_running_loop().time()
        prefixed = [(worker, self._workers[worker].prefixed) for worker in self._prefixes.due(self._workers, now_s)]
        if not new_jobs and not new_workers and not prefixed:
            return
        calls: list[Call[Any]] = [reads.waiting_job(self._shard, ref) for _, ref, _ in new_jobs]
        calls += (watch.prefixes(self._shard, worker) for worker, _ in prefixed)
        calls += (watch.worker_now(self._shard, worker) for worker in new_workers)
        answers = iter(await run_all(self._redis, calls))
        for (member, ref, priority), answer in zip(new_jobs, islice(answers, len(new_jobs)), strict=True):
            self._learn(member, ref, priority, answer)
        self._prefixes.learn(prefixed, tuple(islice(answers, len(prefixed))), now_s, sight.now_ms)
        self._workers |= _readable(new_workers, tuple(answers))

    def _learn(self, member: bytes, ref: str, priority: Priority, answer: WaitingJob | FleetError | None) -> None:
        if answer is None or isinstance(answer, Unreadable):
            self._jobs[member] = None
        else:
            job = value_of(answer)
            self._jobs[member] = JobView(
                ref, member.decode(), priority, job.spec, job.since_ms, job.deadline_ms, job.strikes, job.begun
            )


def _readable(workers: Sequence[str], answers: Sequence[WorkerNow | FleetError | None]) -> dict[str, WorkerNow]:
    """Those whose hash could be read; a broken one takes no jobs and stops nobody."""
    found: dict[str, WorkerNow] = {}
    for worker, answer in zip(workers, answers, strict=True):
        if isinstance(answer, StoreUnavailable):
            raise answer
        if isinstance(answer, WorkerNow):
            found[worker] = answer
    return found
