"""Spans under the caller's trace, by OpenTelemetry's own SDK."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from telemetry import tracing
from tests.support.waiting import eventually

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LEFT_OUT = CALLER[:-1] + "0"
"""By its caller's sampler."""


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


def test_a_span_stands_under_its_caller_with_the_times_it_was_given(exported: InMemorySpanExporter) -> None:
    events = [("first_token", 11.0)]
    tracing.span("engine", CALLER, 10.5, 12.0, attributes={"attempt": 7}, events=events, error="engine_failed")
    (span,) = exported.get_finished_spans()
    assert span.parent
    assert f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}" in CALLER
    assert (span.name, span.start_time, span.end_time) == ("engine", 10_500_000_000, 12_000_000_000)
    assert [(event.name, event.timestamp) for event in span.events] == [("first_token", 11_000_000_000)]
    assert span.attributes == {"attempt": 7}
    assert span.status.description == "engine_failed"


@pytest.mark.parametrize("header", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "\x00", LEFT_OUT])
def test_a_job_without_a_trace_or_whose_trace_is_left_out_has_no_spans(
    exported: InMemorySpanExporter, header: str
) -> None:
    tracing.span("engine", header, 1.0, 2.0)
    assert exported.get_finished_spans() == ()


def test_the_callers_current_span_is_what_a_job_carries(exported: InMemorySpanExporter) -> None:
    provider = TracerProvider()
    with provider.get_tracer("app").start_as_current_span("request") as span:
        carried = tracing.traceparent()
    assert f"{span.get_span_context().trace_id:032x}" in carried
    assert (
        trace.get_current_span(tracing.context_of(carried)).get_span_context().span_id
        == span.get_span_context().span_id
    )
    assert tracing.traceparent() == ""


def test_without_a_collector_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert not tracing.start("worker")


async def test_a_role_tells_its_spans_together_and_soon(
    exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_kept", [])
    engine = tracing.begin("engine", CALLER, 1.0, {})
    tracing.span("queue", CALLER, 1.0, 2.0)
    tracing.end(engine, 3.0)
    tracing.span("finish", LEFT_OUT, 1.0, 2.0)
    assert exported.get_finished_spans() == ()
    for _ in range(tracing.TOGETHER - 2):
        tracing.span("more", CALLER, 1.0, 2.0)
    names = [span.name for span in exported.get_finished_spans()]
    assert names == ["queue", "engine", *["more"] * (tracing.TOGETHER - 2)]
    exported.clear()
    monkeypatch.setattr(tracing, "TOGETHER_S", 0.0)
    tracing.span("late", CALLER, 1.0, 2.0)
    assert exported.get_finished_spans() == ()
    await eventually(lambda: [span.name for span in exported.get_finished_spans()] == ["late"])
