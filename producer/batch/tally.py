"""Counts what a batch does."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T", int, float)
_EXACT_BITS = 10


def nearest_rank(values: Sequence[T], share: float) -> T:
    """Of sorted values, at least one, the smallest that `share` of all do not exceed."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


class Waits:
    """Times in ms, counted so that any percentile can be told: exact below 1,024 ms, else by 0.2 % at most too low.

    A million rows have as few different counts as a thousand, so memory stays flat.
    """

    def __init__(self) -> None:
        """None yet."""
        self._counts: Counter[int] = Counter()
        self._len = 0

    def add(self, ms: int | None, times: int = 1) -> None:
        """So many more; None is no time."""
        if ms is not None:
            rest = max(0, ms.bit_length() - _EXACT_BITS)
            self._counts[ms >> rest << rest] += times
            self._len += times

    def __len__(self) -> int:
        """How many."""
        return self._len

    def percentile(self, share: float) -> int:
        """See `nearest_rank`; 0 when there is none."""
        left = max(1, math.ceil(share * self._len))
        for ms, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return ms
        return 0

    def as_json(self) -> dict[str, int]:
        """p50, p90 and p99 in ms."""
        return {f"p{share}": self.percentile(share / 100) for share in (50, 90, 99)}


class BatchEnd(StrEnum):
    """How a batch ended. Whichever way, each line of its input has exactly one line of output."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"
    """Given up: too many rows failed."""


@dataclass(frozen=True, slots=True)
class FinishedRow:
    """One row that has its output line. Times in ms, None where there was none."""

    number: int
    """Line of the input file."""
    failed: bool
    worker: str = ""
    """Label of the worker that ran it last; empty when none did."""
    tokens_in: int = 0
    tokens_out: int = 0
    queue_ms: int | None = None
    """From its submission to its last start."""
    ttft_ms: int | None = None
    """From its submission to its first token."""
    total_ms: int | None = None
    """From its submission to its end."""
    tokens_cached: int = 0
    """Of `tokens_in`: those whose KV blocks the engine had, where it tells."""
    refused: bool = False
    """Failed, and would fail again: the engine, or the submit, refused the request itself."""
    bad: bool = False
    """It did not run: its line is no request."""
    deduped: bool = False
    """It did not run: it has the answer of a row with the same body."""


@dataclass(slots=True)
class BatchSummary:
    """The figures of a batch."""

    batch_id: str
    state: BatchEnd = BatchEnd.COMPLETED
    model: str = ""
    """That its rows ran on; empty when none could be run."""
    rows_in: int = 0
    """Lines of the input that are not blank."""
    rows_bad: int = 0
    """Of them: no requests, which fail however often they are tried."""
    rows_out: int = 0
    """Rows that ended and have their line."""
    rows_failed: int = 0
    """Of `rows_out`: with an error or a refusal by the engine."""
    rows_refused: int = 0
    """Of `rows_failed`: requests that were refused, and would be again; of runs that were killed they are not known."""
    rows_deduped: int = 0
    """Of `rows_out`: answered by a row with the same body."""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    """Of the tokens in of this run."""
    seconds: float = 0.0
    """Of this run."""
    rows_before: int = 0
    """Of `rows_out`: by earlier runs of the same batch."""
    rows_unrun: int = 0
    """Of `rows_out`: lines that are no requests, of this run."""
    tokens_before: int = 0
    """Of `tokens_out`: likewise."""
    queue_ms: Waits = field(default_factory=Waits)
    ttft_ms: Waits = field(default_factory=Waits)
    total_ms: Waits = field(default_factory=Waits)
    """Of the rows of this run; the other two are of all runs."""
    jobs_by_worker: Counter[str] = field(default_factory=Counter)

    @property
    def rows_unfinished(self) -> int:
        """Rows that never ended; where the batch did, their line says why."""
        return self.rows_in - self.rows_out

    @property
    def was_over(self) -> bool:
        """Whether there was nothing left to do: earlier runs had ended all rows."""
        return self.rows_before == self.rows_in > 0 and self.state is BatchEnd.COMPLETED

    @property
    def clean(self) -> bool:
        """Whether every row was answered."""
        return not self.rows_failed and not self.rows_unfinished

    @property
    def tokens_per_s(self) -> float:
        """Output tokens over the whole time of this run."""
        return (self.tokens_out - self.tokens_before) / self.seconds if self.seconds > 0 else 0.0

    @property
    def rows_per_s(self) -> float:
        """Requests that this run ended, over its whole time."""
        return self.rows_run / self.seconds if self.seconds > 0 else 0.0

    @property
    def rows_run(self) -> int:
        """Rows that this run ended, without lines that are no requests."""
        return self.rows_out - self.rows_before - self.rows_unrun

    def add(self, row: FinishedRow) -> None:
        """Count a row that was written."""
        self.rows_out += 1
        self.rows_failed += row.failed
        self.rows_refused += row.refused
        self.rows_unrun += row.bad
        self.rows_deduped += row.deduped
        if not row.deduped:
            self.tokens_in += row.tokens_in
            self.tokens_out += row.tokens_out
            self.tokens_cached += row.tokens_cached
        self.queue_ms.add(row.queue_ms)
        self.ttft_ms.add(row.ttft_ms)
        self.total_ms.add(row.total_ms)
        if row.worker:
            self.jobs_by_worker[row.worker] += 1

    def as_json(self) -> dict[str, object]:
        """The figures for machines."""
        return {
            "batch_id": self.batch_id,
            "state": self.state,
            "rows_in": self.rows_in,
            "rows_bad": self.rows_bad,
            "rows_out": self.rows_out,
            "rows_failed": self.rows_failed,
            "rows_unfinished": self.rows_unfinished,
            "rows_deduped": self.rows_deduped,
            "rows_before": self.rows_before,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "tokens_cached": self.tokens_cached,
            "seconds": round(self.seconds, 3),
            "rows_per_s": round(self.rows_per_s, 1),
            "tokens_per_s": round(self.tokens_per_s, 1),
            "queue_ms": self.queue_ms.as_json(),
            "ttft_ms": self.ttft_ms.as_json(),
            "total_ms": self.total_ms.as_json(),
            "jobs_by_worker": dict(sorted(self.jobs_by_worker.items())),
        }
