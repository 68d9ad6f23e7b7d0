"""Spans under the caller's trace, by OpenTelemetry's own SDK."""

from collections.abc import Iterator
from functools import partial

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from telemetry import tracing
from telemetry.exporting import pass_on

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LEFT_OUT = CALLER[:-1] + "0"
"""By its caller's sampler."""


@pytest.fixture(params=["producer", "role"])
def exported(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What comes of a producer's spans, which its program exports, and of a role's, which we do."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    if request.param == "producer":
        provider.add_span_processor(processor)
        monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("tokenfleet"))
    else:
        monkeypatch.setattr(tracing, "_export", partial(pass_on, processor, Resource.create()))
    yield exporter
    provider.shutdown()


def test_a_span_stands_under_its_caller_with_the_times_it_was_given(exported: InMemorySpanExporter) -> None:
    events = [("first_token", 11.0)]
    tracing.span("engine", CALLER, (10.5, 12.0), attributes={"attempt": 7}, events=events, error="engine_failed")
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
    tracing.span("engine", header, (1.0, 2.0))
    assert exported.get_finished_spans() == ()


def test_spans_of_one_job_have_ids_of_their_own_and_its_traces(exported: InMemorySpanExporter) -> None:
    for name in ("queue", "inbox"):
        tracing.span(name, CALLER, (1.0, 2.0))
    own = [span.context for span in exported.get_finished_spans() if span.context]
    assert len({context.span_id for context in own}) == 2
    assert {(f"{context.trace_id:032x}", context.trace_flags) for context in own} == {(CALLER[3:35], 1)}


def test_a_roles_span_has_the_name_that_it_has_gone_by(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "_export", partial(pass_on, SimpleSpanProcessor(exporter), Resource.create()))
    own = tracing.beneath(CALLER)
    tracing.span("engine", CALLER, (1.0, 2.0), own=own)
    (span,) = exporter.get_finished_spans()
    assert span.context
    assert own == CALLER.replace(CALLER[36:52], f"{span.context.span_id:016x}") != CALLER
    assert tracing.beneath(LEFT_OUT) == LEFT_OUT


def test_who_exports_nothing_itself_passes_its_callers_name_on() -> None:
    assert tracing.beneath(CALLER) == CALLER


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


def test_who_has_disabled_the_sdk_exports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.ENDPOINT_VARIABLES[0], "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not tracing.start("worker")
