"""What is told of a batch while it runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from producer.batch.pace import Pace
from producer.batch.tally import BatchSummary, FinishedRow
from producer.batch.window import Window


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a batch stands; rows of earlier runs of it are counted."""

    batch_id: str
    rows_total: int
    rows_in: int
    """Rows that were sent, or have ended without."""
    rows_out: int
    rows_failed: int
    rows_in_redis: int
    rows_deduped: int
    """Of `rows_out`: answered by a row with the same body."""
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    """Of `tokens_in`: those whose KV blocks the engines had."""
    seconds: float
    """Of this run."""
    rows_per_s: float
    tokens_per_s: float
    """Of the last half minute."""
    left_s: float | None
    """When it will end at this pace; None while nobody can know."""
    late_s: float | None
    """How long after the deadline that would be; None when it is in time, or there is none."""


class Teller:
    """Tells callers what the desk has written."""

    def __init__(
        self,
        summary: BatchSummary,
        window: Window,
        ends_at: float | None,
        clock: Callable[[], float],
        on_progress: Callable[[Progress], None],
        on_row: Callable[[FinishedRow], None],
    ) -> None:
        """`clock` gives seconds, and `ends_at` the batch's deadline on it."""
        self._summary, self._window, self._ends_at, self._clock = summary, window, ends_at, clock
        self._on_progress, self._on_row = on_progress, on_row
        self._begin = clock()
        self._pace = Pace(self._begin)

    def tell(self, finished: Sequence[FinishedRow]) -> None:
        """Rows have ended."""
        summary, now = self._summary, self._clock()
        summary.seconds = now - self._begin
        self._pace.note(now, summary.rows_out - summary.rows_before, summary.tokens_out - summary.tokens_before)
        for row in finished:
            self._on_row(row)
        self._on_progress(self._progress(now))

    def end(self) -> None:
        """The run is over: its whole time counts."""
        self._summary.seconds = self._clock() - self._begin

    def _progress(self, now: float) -> Progress:
        summary, running = self._summary, len(self._window.pending)
        left_s = self._pace.left_s(summary.rows_unfinished)
        late = left_s is not None and self._ends_at is not None and now + left_s > self._ends_at
        return Progress(
            batch_id=summary.batch_id,
            rows_total=summary.rows_in,
            rows_in=min(summary.rows_in, summary.rows_out + running),
            rows_out=summary.rows_out,
            rows_failed=summary.rows_failed,
            rows_in_redis=running,
            rows_deduped=summary.rows_deduped,
            tokens_in=summary.tokens_in,
            tokens_out=summary.tokens_out,
            tokens_cached=summary.tokens_cached,
            seconds=summary.seconds,
            rows_per_s=self._pace.rows_per_s,
            tokens_per_s=self._pace.tokens_per_s,
            left_s=left_s,
            late_s=now + left_s - self._ends_at if late and left_s is not None and self._ends_at is not None else None,
        )
