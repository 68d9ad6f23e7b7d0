"""Our own counters and histograms, held against those of `prometheus_client`."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from telemetry.instruments import MUCH, Counters, Histograms
from telemetry.serve import new_registry, page

BOUNDS = (0.01, 0.5, 1, 2.5)
LABELS = ("pool", "priority")


@pytest.fixture(autouse=True)
def plain() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations


@given(st.lists(st.one_of(st.sampled_from(BOUNDS), st.integers(0, 80).map(lambda eighths: eighths / 8)), max_size=20))
def test_a_histogram_tells_what_the_librarys_own_does(values: Sequence[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    bars = Histograms("wait_seconds", "A wait.", LABELS, BOUNDS, ours).of("p", "high")
    series = Histogram("wait_seconds", "A wait.", LABELS, buckets=BOUNDS, registry=theirs).labels("p", "high")
    for value in values:
        bars.observe(value)
        series.observe(value)
    assert generate_latest(ours) == generate_latest(theirs)


def test_what_comes_between_two_reads_is_counted_once_and_not_kept() -> None:
    waits = Histograms("wait_seconds", "A wait.", LABELS, (1.0, 2.0), CollectorRegistry())
    bars = waits.of("p", "high")
    assert bars.fold() == ([0, 0, 0], 0.0)
    for value in (0.5, 1.5, 1.75):
        bars.observe(value)
    assert bars.fold() == bars.fold() == ([1, 3, 3], 3.75)
    bars.observe(4.0)
    assert bars.fold() == ([1, 3, 4], 7.75)
    for _ in range(MUCH):
        assert not bars.much
        bars.observe(1.0)
    waits.fold()
    assert not bars.much
    assert bars.fold() == ([1 + MUCH, 3 + MUCH, 4 + MUCH], 7.75 + MUCH)


def test_a_counter_tells_what_the_librarys_own_does() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counters, their_own = Counters("jobs", "Jobs.", LABELS, ours), Counter("jobs", "Jobs.", LABELS, registry=theirs)
    for labels in (("p", "high"), ('q"\n\\', "low")):
        counters.of(*labels).inc()
        counters.of(*labels).inc(2.5)
        their_own.labels(*labels).inc(3.5)
    counters.of("p", "medium")
    their_own.labels("p", "medium")
    assert generate_latest(ours) == generate_latest(theirs)


def test_the_page_of_all_is_what_the_library_would_write() -> None:
    registry = new_registry()
    Gauge("beside", "Not ours.", registry=registry).set(2)
    counters = Counters("jobs", "Jobs.", LABELS, registry)
    waits = Histograms("wait_seconds", "A wait.", LABELS, BOUNDS, registry)
    for labels in (("p", "high"), ('q"\n\\', "low")):
        counters.of(*labels).inc(1e17)
        for value in (0.001, 0.5, 77.25, 1e-9):
            waits.of(*labels).observe(value)

    def lines(text: bytes) -> list[bytes]:
        # The process's own figures move between two looks.
        return sorted(line for line in text.splitlines() if not line.startswith((b"process_", b"python_gc")))

    assert lines(page(registry)) == lines(generate_latest(registry))
    assert b"jobs_total" in page(registry)
    assert b'le="+Inf"' in page(registry)
