"""Traces by OpenTelemetry's API. Without its SDK, the extra `otel`, all of this does nothing, and costs next to it."""

import os
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_HEADER = "traceparent"
_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("tokenfleet")


def start(role: str) -> bool:
    """Export this process's spans where the environment names a collector and the SDK is installed; whether it does."""
    if not any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        return False
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return False
    provider = TracerProvider(resource=Resource.create({"service.name": f"tokenfleet-{role}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True


def traceparent(span: Span | None = None) -> str:
    """W3C's header for the span, or for the caller's current one; empty when nothing traces."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span) if span else None)
    return carrier.get(_HEADER, "")


def context_of(header: str) -> Context | None:
    """What a `traceparent` names, as the parent of spans; None when it names nothing."""
    if not header:
        return None
    context = _propagator.extract({_HEADER: header})
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def span(
    name: str,
    parent: str,
    begin_s: float,
    end_s: float,
    *,
    attributes: Mapping[str, str | int | float] | None = None,
    events: Sequence[tuple[str, float]] = (),
    error: str = "",
) -> None:
    """Record what has happened already, under the caller's trace; nothing where it has none.

    Args:
        name: of the span.
        parent: the job's `traceparent`.
        begin_s: in seconds since 1970.
        end_s: likewise.
        attributes: of bounded kinds; never a prompt.
        events: names and times within it.
        error: a code, where it failed.
    """
    context = context_of(parent)
    if context is None:
        return
    told = _tracer.start_span(
        name, context, SpanKind.INTERNAL, attributes=dict(attributes or {}), start_time=_ns(begin_s)
    )
    for event, at_s in events:
        told.add_event(event, timestamp=_ns(at_s))
    if error:
        told.set_status(Status(StatusCode.ERROR, error))
    told.end(_ns(end_s))


def _ns(seconds: float) -> int:
    return round(seconds * 1_000_000_000)
