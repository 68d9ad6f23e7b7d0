"""Counts what a batch does."""

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T", int, float)


def nearest_rank(values: Sequence[T], share: float) -> T:
    """Of sorted values, at least one, the smallest that `share` of all do not exceed."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


class Waits:
    """Times in ms; kept, so that any percentile can be told."""

    def __init__(self) -> None:
        """None yet."""
        self._values = array("q")

    def add(self, ms: int | None) -> None:
        """One more; None is no time."""
        if ms is not None:
            self._values.append(ms)

    def __len__(self) -> int:
        """How many."""
        return len(self._values)

    def percentile(self, share: float) -> int:
        """See `nearest_rank`; 0 when there is none."""
        return nearest_rank(sorted(self._values), share) if self._values else 0

    def as_json(self) -> dict[str, int]:
        """p50, p90 and p99 in ms."""
        return {f"p{share}": self.percentile(share / 100) for share in (50, 90, 99)}


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


@dataclass(slots=True)
class BatchSummary:
    """The figures of a batch."""

    batch_id: str
    rows_in: int = 0
    rows_out: int = 0
    rows_failed: int = 0
    """Rows with an error or a refusal by the engine; they have their output line too."""
    tokens_in: int = 0
    tokens_out: int = 0
    rows_unrun: int = 0
    end: str = "completed"
    model: str = ""
    seconds: float = 0.0
    queue_ms: Waits = field(default_factory=Waits)
    ttft_ms: Waits = field(default_factory=Waits)
    jobs_by_worker: Counter[str] = field(default_factory=Counter)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens over the batch's whole time."""
        return self.tokens_out / self.seconds if self.seconds > 0 else 0.0

    def add(self, row: FinishedRow) -> None:
        """Count a row that was written."""
        self.rows_out += 1
        self.rows_failed += row.failed
        self.tokens_in += row.tokens_in
        self.tokens_out += row.tokens_out
        self.queue_ms.add(row.queue_ms)
        self.ttft_ms.add(row.ttft_ms)
        if row.worker:
            self.jobs_by_worker[row.worker] += 1

    def as_json(self) -> dict[str, object]:
        """The figures for machines."""
        return {
            "batch_id": self.batch_id,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rows_failed": self.rows_failed,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "seconds": round(self.seconds, 3),
            "tokens_per_s": round(self.tokens_per_s, 1),
            "queue_ms": self.queue_ms.as_json(),
            "ttft_ms": self.ttft_ms.as_json(),
            "jobs_by_worker": dict(sorted(self.jobs_by_worker.items())),
        }
