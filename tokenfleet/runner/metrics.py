"""What a batch runner tells Prometheus: the batches of the fleet, those that it owns, and their rows."""

from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from producer.batch.progress import Progress
from producer.batch.service.serve import Watch
from producer.batch.tally import FinishedRow
from protocol.batches import BatchStatus

ROW_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400)
"""The histogram's bounds."""
LIVING = tuple(status for status in BatchStatus if not status.terminal)
ENDS = tuple(status for status in BatchStatus if status.terminal)


@dataclass(slots=True, eq=False)
class _Owned:
    """A batch that this runner owns, and what it last told."""

    news: Progress | None = None

    def tell(self, news: Progress) -> None:
        self.news = news


class Metrics:
    """One batch runner's metrics, in this registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name = "tokenfleet_{}".format
        self._owned: set[_Owned] = set()
        self._living = Gauge(
            name("batches"),
            "Batches of the fleet that have not ended, of the first 1,000; each runner tells of all.",
            ("state",),
            registry=registry,
        )
        self.living(())
        self._takes = Counter(name("batch_takes"), "Batches that this runner became the owner of.", registry=registry)
        ended = Counter(name("batch_ends"), "Batches that it brought to their end.", ("state",), registry=registry)
        self._ended = {status: ended.labels(status) for status in ENDS}
        rows = Counter(name("batch_rows"), "Rows that got their output line here.", ("end",), registry=registry)
        self._rows = {end: rows.labels(end) for end in ("completed", "failed", "deduped")}
        self._prompt_tokens = Counter(name("batch_prompt_tokens"), "Prompt tokens of those rows.", registry=registry)
        self._output_tokens = Counter(name("batch_output_tokens"), "Tokens of their answers.", registry=registry)
        self._row_s = Histogram(
            name("batch_row_seconds"), "From a row's submission to its end.", buckets=ROW_S, registry=registry
        )
        owned = Gauge(name("batches_owned"), "Batches that this runner owns now.", registry=registry)
        owned.set_function(lambda: len(self._owned))
        for what, meaning, value in _PROGRESS:
            gauge = Gauge(name(what), meaning, registry=registry)
            gauge.set_function(partial(self._sum, value))

    @contextmanager
    def batch(self) -> Iterator[Watch]:
        """One that this runner may come to own; the watch tells of it while the block runs."""
        owned = _Owned()

        def took() -> None:
            self._takes.inc()
            self._owned.add(owned)

        try:
            yield Watch(took, owned.tell, self._row)
        finally:
            self._owned.discard(owned)

    def ended(self, status: BatchStatus) -> None:
        """A batch was brought to its end."""
        self._ended[status].inc()

    def living(self, statuses: Iterable[BatchStatus] | None) -> None:
        """The states of the batches that have not ended; None when nobody knows, and then nothing is told."""
        if statuses is None:
            self._living.clear()
            return
        counts = Count(statuses)
        for status in LIVING:
            self._living.labels(status).set(counts[status])

    def _row(self, row: FinishedRow) -> None:
        self._rows["deduped" if row.deduped else "failed" if row.failed else "completed"].inc()
        if row.deduped:
            return
        self._prompt_tokens.inc(row.tokens_in)
        self._output_tokens.inc(row.tokens_out)
        if row.total_ms is not None:
            self._row_s.observe(row.total_ms / 1000)

    def _sum(self, value: Callable[[Progress], float]) -> float:
        return sum(map(value, self._news()))

    def _news(self) -> list[Progress]:
        return [owned.news for owned in list(self._owned) if owned.news]


_PROGRESS: tuple[tuple[str, str, Callable[[Progress], float]], ...] = (
    ("batch_rows_left", "Rows of those that have no output line yet.", lambda news: news.rows_total - news.rows_out),
    ("batch_rows_in_redis", "Rows of those that are jobs now.", lambda news: news.rows_in_redis),
    (
        "batch_rows_per_second",
        "Rows a second of those, over the last half minute; of up to two minutes where rows are slow.",
        lambda news: news.rows_per_s,
    ),
    ("batches_late", "Of those: how many will be late at their pace.", lambda news: news.late_s is not None),
)
