"""The lanes as the function library keeps them: start-time fair queueing, in virtual time.

The same rules as `fair_place` and `advance` of protocol/functions, held against them by a test.
"""

import heapq
from bisect import insort
from collections.abc import Iterable

from protocol.states import Priority
from scheduler.policy.view import HEADS, JobView

Entry = tuple[float, int, str]
"""Score, sequence number, ref."""


class Lane:
    """The queued jobs of one priority."""

    def __init__(self) -> None:
        self._time = 0.0
        self._seq = 0
        self._tags: dict[str, float] = {}
        # The window that a round sees is kept sorted; behind it a heap, so that a million queued jobs cost little.
        self._window: list[Entry] = []
        self._rest: list[Entry] = []
        self._jobs: dict[str, tuple[Entry, JobView]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: JobView, weight: float = 1.0) -> None:
        """Place a new job behind its tenant's others."""
        tenant = job.ref.partition(":")[0]
        score = max(self._time, self._tags.get(tenant, 0.0))
        self._tags[tenant] = score + job.spec.cost_tokens / weight
        self._seq += 1
        self._insert((score, self._seq, job.ref), job)

    def put_back(self, job: JobView, entry: Entry) -> None:
        """A job comes back to its place."""
        self._insert(entry, job)

    def heads(self) -> tuple[JobView, ...]:
        """The first jobs, at most `HEADS`."""
        return tuple(self._jobs[ref][1] for _, _, ref in self._window)

    def take(self, refs: Iterable[str]) -> dict[str, Entry]:
        """Jobs start in one call; the lane's time follows the last of them, but never past the head that is left."""
        taken = {ref: entry for ref in refs if (entry := self.remove(ref))}
        if taken:
            latest = max(score for score, _, _ in taken.values())
            head = self._window[0][0] if self._window else latest
            self._time = max(self._time, min(latest, head))
        return taken

    def remove(self, ref: str) -> Entry | None:
        """The job leaves without starting."""
        entry, _ = self._jobs.pop(ref, (None, None))
        if entry in self._window:
            self._window.remove(entry)
            self._fill()
        return entry

    def _insert(self, entry: Entry, job: JobView) -> None:
        self._jobs[entry[2]] = (entry, job)
        heapq.heappush(self._rest, entry)
        if len(self._window) < HEADS:
            self._fill()
        elif entry < self._window[-1]:
            heapq.heappush(self._rest, self._window.pop())
            self._fill()

    def _fill(self) -> None:
        while self._rest and len(self._window) < HEADS:
            entry = heapq.heappop(self._rest)
            known = self._jobs.get(entry[2])
            if known and known[0] == entry:
                insort(self._window, entry)


class Lanes:
    """All lanes of a shard."""

    def __init__(self) -> None:
        self.of: dict[Priority, Lane] = {priority: Lane() for priority in Priority}

    def heads(self) -> tuple[tuple[JobView, ...], ...]:
        """What a round sees of those that hold jobs."""
        return tuple(lane.heads() for lane in self.of.values() if len(lane))

    def add_all(self, jobs: Iterable[JobView]) -> None:
        """Place new jobs in their order."""
        for job in jobs:
            self.of[job.priority].add(job)
