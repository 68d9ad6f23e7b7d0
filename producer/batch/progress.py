"""What is told of a batch while it runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from producer.batch.pace import LEAST_S, Pace
from producer.batch.tally import BatchSummary, FinishedRow
from producer.batch.window import Window
from protocol.batches import BatchRecord, BatchStatus, BatchUsage


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
    """Of the tokens in of this run: those whose KV blocks the engines had."""
    seconds: float
    """Of this run; of a submitted batch, since its rows run."""
    rows_per_s: float
    tokens_per_s: float
    """Of the last half minute; of up to two minutes where rows are slow."""
    left_s: float | None
    """When it will end at this pace; None while nobody can know."""
    late_s: float | None
    """How long after the deadline that would be; None when it is in time, or there is none."""
    model: str = ""
    """That its rows run on; empty when none can be run, or it is not known yet."""
    summary: BatchSummary | None = field(default=None, repr=False, compare=False)
    """The figures of a run, which count on; None of a submitted batch. Who breaks a run off has them from here."""


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
        self._pace.note(now, summary.rows_run, summary.tokens_out - summary.tokens_before)
        for row in finished:
            self._on_row(row)
        self._on_progress(self._progress())

    def end(self) -> None:
        """The run is over: its whole time counts."""
        self._summary.seconds = self._clock() - self._begin

    def _progress(self) -> Progress:
        summary = self._summary
        # Rows that were written just now still have their places.
        running = min(len(self._window.pending), summary.rows_unfinished)
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
            left_s=self._pace.left_s(summary.rows_unfinished),
            late_s=self._pace.late_s(summary.rows_unfinished, self._ends_at),
            model=summary.model,
            summary=summary,
        )


class Watcher:
    """Tells the same of a submitted batch, from its record at each look.

    The time is that since its rows run, and the first seconds' pace its average; then, and for what is predicted, only
    what was seen counts.
    """

    def __init__(self, record: BatchRecord, now_s: float) -> None:
        """`now_s` is Redis's time, in seconds since 1970."""
        self._looked_s, self._first = now_s, record
        begun_ms = record.times_ms.get(BatchStatus.IN_PROGRESS)
        self._begun_s = now_s if begun_ms is None else min(begun_ms / 1000, now_s)
        self._pace = Pace(now_s)

    def look(self, record: BatchRecord, now_s: float) -> Progress:
        """How it stands at this time."""
        counts, usage, first = record.counts, record.usage or BatchUsage(), self._first
        out, tokens_before = counts.completed + counts.failed, first.usage.output_tokens if first.usage else 0
        rows_before = first.counts.completed + first.counts.failed
        self._pace.note(now_s, out - rows_before, usage.output_tokens - tokens_before)
        seconds, speeds = now_s - self._begun_s, (self._pace.rows_per_s, self._pace.tokens_per_s)
        if now_s - self._looked_s < LEAST_S and self._begun_s < self._looked_s:
            speeds = (out / seconds, usage.output_tokens / seconds)
        return Progress(
            batch_id=record.name.id,
            rows_total=counts.total,
            rows_in=out,
            rows_out=out,
            rows_failed=counts.failed,
            rows_in_redis=0,
            rows_deduped=0,
            tokens_in=usage.input_tokens,
            tokens_out=usage.output_tokens,
            tokens_cached=usage.cached_tokens,
            seconds=seconds,
            rows_per_s=speeds[0],
            tokens_per_s=speeds[1],
            left_s=self._pace.left_s(counts.total - out),
            late_s=self._pace.late_s(counts.total - out, record.expires_ms / 1000),
            model=record.model or record.spec.model or "",
        )
