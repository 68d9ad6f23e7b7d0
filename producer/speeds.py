"""What only several looks at the reports tell: tokens a second, and the first tokens of the last minute. Pure."""

import math
from collections import deque
from collections.abc import Collection, Sequence

from producer.overview import FirstTokens
from protocol.handle import Shard
from protocol.messages import WorkerRecord

LOOK_BACK_MS = 5_000
LEAST_MS = 150
"""Two reports that lie closer together tell no speed."""
FIRSTS_KEPT_MS = 60_000

Worker = tuple[Shard, str]


class Speeds:
    """Remembers the last reports of each worker; times in ms of Redis's clock."""

    def __init__(self) -> None:
        """Begin with none."""
        self._marks: dict[Worker, deque[tuple[int, int]]] = {}
        self._firsts: dict[tuple[Shard, int], tuple[int, int]] = {}

    def note(self, shard: Shard, record: WorkerRecord, now_ms: int) -> None:
        """A worker as it was found; its newest report counts once however often it is found."""
        report = record.report
        marks = self._marks.setdefault((shard, record.id), deque())
        if marks and report.generated_tokens < marks[-1][1]:
            # Its engine began anew, and so did its count.
            marks.clear()
        if not marks or record.report_ms > marks[-1][0]:
            marks.append((record.report_ms, report.generated_tokens))
        while len(marks) > 1 and now_ms - marks[1][0] > LOOK_BACK_MS:
            marks.popleft()
        for attempt, first_ms in report.firsts:
            self._firsts.setdefault((shard, attempt), (record.report_ms, first_ms))

    def tokens_per_s(self, shard: Shard, worker_id: str, now_ms: int) -> float | None:
        """Output tokens a second over the last seconds; None while one report is known, 0 of a silent worker."""
        marks = self._marks.get((shard, worker_id))
        if not marks:
            return None
        (first_ms, first), (last_ms, last) = marks[0], marks[-1]
        if now_ms - last_ms > LOOK_BACK_MS:
            return 0.0
        return 1000 * (last - first) / (last_ms - first_ms) if last_ms - first_ms >= LEAST_MS else None

    def first_tokens(self, now_ms: int) -> FirstTokens:
        """Those of the last minute."""
        self._firsts = {who: first for who, first in self._firsts.items() if now_ms - first[0] <= FIRSTS_KEPT_MS}
        times = sorted(first_ms for _, first_ms in self._firsts.values())
        if not times:
            return FirstTokens(0, None, None)
        return FirstTokens(len(times), _percentile(times, 50), _percentile(times, 95))

    def keep(self, workers: Collection[Worker]) -> None:
        """Forget all workers but these."""
        self._marks = {worker: marks for worker, marks in self._marks.items() if worker in workers}


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """By nearest rank."""
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]
