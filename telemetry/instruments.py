"""Counters and histograms for hot paths, at a quarter of what `prometheus_client`'s own take, and a page at a tenth.

They have one writer, a role's event loop, which observes without a lock; whoever scrapes reads what is there from a
thread of its own.
"""

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

MUCH = 1_000
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Count:
    """One series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, by: float = 1) -> None:
        """It happened, so often."""
        self.value += by


class Bars:
    """One series of a histogram.

    What is observed is only kept, at the cost of a list's `append`; `fold` counts it, many values at a time. Whoever
    reads does, and its writer now and then.

    Attributes:
        observe: count a value.
    """

    __slots__ = ("_bounds", "_folding", "_fresh", "_sum", "_upto", "observe")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._upto = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._folding = Lock()
        self._fresh: list[float] = []
        self.observe: Callable[[float], None] = self._fresh.append

    @property
    def much(self) -> bool:
        """Whether it is time to count."""
        return len(self._fresh) >= MUCH

    def fold(self) -> tuple[list[int], float]:
        """Count what is fresh. Returns how many values lie up to each bound, last how many there are; and their sum."""
        with self._folding:
            # Values may come meanwhile, at the end.
            if fresh := self._fresh[:]:
                del self._fresh[: len(fresh)]
                self._sum += sum(fresh)
                fresh.sort()
                for number, bound in enumerate(self._bounds):
                    self._upto[number] += bisect_right(fresh, bound)
                self._upto[-1] += len(fresh)
            return self._upto[:], self._sum


S = TypeVar("S", Count, Bars)


class Instrument(Collector, Generic[S]):
    """One metric: all its series."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._meaning, self._labels = name, meaning, labels
        self._series: dict[tuple[str, ...], tuple[S, list[str]]] = {}
        registry.register(self)

    def of(self, *values: str) -> S:
        """The series with these labels, at zero when it is new: keep it, looking it up takes time."""
        if values not in self._series:
            heads = list(self._lines_of(dict(zip(self._labels, values, strict=True))))
            self._series[values] = self._new(), heads
        return self._series[values][0]

    def forget(self, *first: str) -> None:
        """Drop all series whose labels begin with these."""
        for values in [values for values in self._series if values[: len(first)] == first]:
            del self._series[values]

    def text(self) -> str:
        """All series, as `generate_latest` would write what `collect` has."""
        kind, name = self._kind()
        lines = [f"# HELP {name} {self._meaning}\n# TYPE {name} {kind}\n"]
        for series, heads in list(self._series.values()):
            for head, value in zip(heads, self._values(series), strict=True):
                lines.append(f"{head} {_number(value)}\n")
        return "".join(lines)

    @abstractmethod
    def _kind(self) -> tuple[str, str]:
        """The metric's type and name, as the page has them."""

    @abstractmethod
    def _new(self) -> S:
        """A series at zero."""

    @abstractmethod
    def _lines_of(self, labels: dict[str, str]) -> Iterator[str]:
        """What stands before each of a series' values."""

    @abstractmethod
    def _values(self, series: S) -> Sequence[float]:
        """A series' values, line by line."""


class Counters(Instrument[Count]):
    """A counter.

    Args:
        name: without `_total`.
        meaning: one sentence for the page.
        labels: their names.
        registry: where it is registered.
    """

    def collect(self) -> Iterator[Metric]:
        """All series."""
        metric = CounterMetricFamily(self._name, self._meaning, labels=self._labels)
        for values, (count, _) in list(self._series.items()):
            metric.add_metric(values, count.value)
        yield metric

    def _kind(self) -> tuple[str, str]:
        return "counter", f"{self._name}_total"

    def _new(self) -> Count:
        return Count()

    def _lines_of(self, labels: dict[str, str]) -> Iterator[str]:
        yield _line(f"{self._name}_total", labels)

    def _values(self, series: Count) -> Sequence[float]:
        return (series.value,)


class Histograms(Instrument[Bars]):
    """A histogram.

    Args:
        name: in its base unit.
        meaning: one sentence for the page.
        labels: their names.
        bounds: of the bars, rising; the last bar has none.
        registry: where it is registered.
    """

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str], bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._bounds = bounds
        self._words = [_number(bound) for bound in (*map(float, bounds), math.inf)]
        super().__init__(name, meaning, labels, registry)

    def fold(self) -> None:
        """Count what is fresh where it is much: nobody may ever ask."""
        for bars, _ in list(self._series.values()):
            if bars.much:
                bars.fold()

    def collect(self) -> Iterator[Metric]:
        """All series."""
        metric = HistogramMetricFamily(self._name, self._meaning, labels=self._labels)
        for values, (bars, _) in list(self._series.items()):
            upto, total = bars.fold()
            metric.add_metric(values, list(zip(self._words, upto, strict=True)), total)
        yield metric

    def _kind(self) -> tuple[str, str]:
        return "histogram", self._name

    def _new(self) -> Bars:
        return Bars(self._bounds)

    def _lines_of(self, labels: dict[str, str]) -> Iterator[str]:
        for word in self._words:
            yield _line(f"{self._name}_bucket", {**labels, "le": word})
        yield _line(f"{self._name}_count", labels)
        yield _line(f"{self._name}_sum", labels)

    def _values(self, series: Bars) -> Sequence[float]:
        upto, total = series.fold()
        return (*upto, upto[-1], total)


class Registry(CollectorRegistry):
    """One whose instruments write their part of the page themselves."""

    def __init__(self) -> None:
        super().__init__()
        self._own: list[Instrument[Count] | Instrument[Bars]] = []
        self.others = CollectorRegistry()
        """All else that is registered."""

    def register(self, collector: Collector) -> None:
        """Take it in."""
        super().register(collector)
        if isinstance(collector, Instrument):
            self._own.append(collector)
        else:
            self.others.register(collector)

    def text(self) -> str:
        """The instruments' part of the page."""
        return "".join(own.text() for own in self._own)


def _line(name: str, labels: dict[str, str]) -> str:
    told = ",".join(f'{label}="{value.translate(_ESCAPED)}"' for label, value in sorted(labels.items()))
    return f"{name}{{{told}}}"


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value}.0"
    word: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # it has no annotations
    return word
