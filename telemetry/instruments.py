"""Counters and histograms for hot paths, at a quarter of what `prometheus_client`'s own take.

They have one writer, a role's event loop, and so no lock; whoever scrapes reads what is there from a thread of its own.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


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

    Attributes:
        counts: how many values lie up to each bound and above the one before; the last count is of those above all.
        sum: of the values.
    """

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class Counters(Collector):
    """A counter: all its series.

    Args:
        name: without `_total`.
        meaning: one sentence for the page.
        labels: their names.
        registry: where it is registered.
    """

    def __init__(self, name: str, meaning: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._meaning, self._labels = name, meaning, labels
        self._series: dict[tuple[str, ...], Count] = {}
        registry.register(self)

    def of(self, *values: str) -> Count:
        """The series with these labels, at zero when it is new: keep it, looking it up takes time."""
        return self._series.setdefault(values, Count())

    def collect(self) -> Iterator[Metric]:
        """All series."""
        metric = CounterMetricFamily(self._name, self._meaning, labels=self._labels)
        for values, count in list(self._series.items()):
            metric.add_metric(values, count.value)
        yield metric


class Histograms(Collector):
    """A histogram: all its series.

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
        self._name, self._meaning, self._labels, self._bounds = name, meaning, labels, bounds
        self._words = [floatToGoString(bound) for bound in (*bounds, math.inf)]  # type: ignore[no-untyped-call]  # it has no annotations
        self._series: dict[tuple[str, ...], Bars] = {}
        registry.register(self)

    def of(self, *values: str) -> Bars:
        """The series with these labels, as for `Counters`."""
        return self._series.setdefault(values, Bars(self._bounds))

    def collect(self) -> Iterator[Metric]:
        """All series."""
        metric = HistogramMetricFamily(self._name, self._meaning, labels=self._labels)
        for values, bars in list(self._series.items()):
            metric.add_metric(values, list(zip(self._words, accumulate(bars.counts), strict=True)), bars.sum)
        yield metric
