"""Traces. Producers speak OpenTelemetry's API; roles export by themselves, by its SDK, which is the extra `otel`.

Without either, all of this does nothing, and costs next to it.
"""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_HEADER = "traceparent"
_IDS, _FLAGS = (slice(3, 35), slice(36, 52)), slice(53, 55)
_SAMPLED = frozenset("13579bdf")
"""Where W3C's header has a trace's and a span's ids and the flags, and how these end in a trace that is recorded."""
_LATEST_NS = 2**63 - 1
_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("tokenfleet")
Attributes = Mapping[str, str | int | float]
"""Of bounded kinds; never a prompt."""


@dataclass(frozen=True, slots=True)
class Told:
    """A span that is over; times in ns since 1970.

    Attributes:
        error: a code, where it failed.
    """

    name: str
    parent: SpanContext
    begin_ns: int
    end_ns: int
    attributes: Attributes
    events: Sequence[tuple[str, int]]
    error: str


Export = Callable[[SpanContext, Told], None]
"""Takes a span's own ids, and what there is to tell of it."""
_export: Export | None = None
"""None: spans go by the API, to whatever a producer's program has set up."""


def start(role: str) -> bool:
    """Export this process's spans where the environment names a collector and the SDK is installed; whether it does.

    A job's caller has sampled: what it left out is left out, and `OTEL_TRACES_SAMPLER` of the role is not asked.
    """
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or not any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        return False
    try:
        from telemetry.exporting import exporting
    except ImportError:
        return False
    global _export  # noqa: PLW0603 - a process has one exporter
    _export = exporting(role)
    return True


def traceparent(span: Span | None = None) -> str:
    """W3C's header for the span, or for the caller's current one; empty when nothing traces."""
    own = (span or trace.get_current_span()).get_span_context()
    return f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}" if own.is_valid else ""


def of_request(header: str) -> str:
    """What a job carries that a request with this header asks for: the current span, else the header's; empty for none.

    A header of a later version of W3C's form is read as far as it is known, and written as ours.
    """
    if current := traceparent():
        return current
    context = context_of(header)
    return traceparent(trace.get_current_span(context)) if context else ""


def context_of(header: str) -> Context | None:
    """What a `traceparent` names, as the parent of spans; None when it names nothing."""
    if not header:
        return None
    context = _propagator.extract({_HEADER: header})
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def recorded(traceparent: str) -> bool:
    """Whether it names a trace, and its sampler has not left that out.

    Read by hand: samplers leave most traces out, and each of a job's spans would take the header apart anew.
    """
    return traceparent[54:55] in _SAMPLED


def beneath(parent: str) -> str:
    """What a span under `parent` is called, for those whom it asks, and for `span` once it is over.

    Where this process does not export, and of a trace that is left out: the parent itself.
    """
    return f"{parent[:36]}{_new_id():016x}{parent[52:]}" if _export and recorded(parent) else parent


def span(
    name: str,
    parent: str,
    during_s: tuple[float, float],
    *,
    attributes: Attributes | None = None,
    events: Sequence[tuple[str, float]] = (),
    error: str = "",
    own: str = "",
) -> None:
    """Record what has happened already, under the caller's trace; nothing where it has none.

    Args:
        name: of the span.
        parent: the job's `traceparent`.
        during_s: its begin and end, in seconds since 1970.
        attributes: what it is about.
        events: names and times within it.
        error: a code, where it failed.
        own: what `beneath` has called it; empty where nobody was told.
    """
    if not recorded(parent) or not (caller := _context(parent)).is_valid:
        return
    begin_ns, end_ns = map(_ns, during_s)
    told = Told(name, caller, begin_ns, end_ns, attributes or {}, [(what, _ns(at_s)) for what, at_s in events], error)
    if not _export:
        _tell(told)
        return
    new = SpanContext(caller.trace_id, _new_id(), is_remote=False, trace_flags=caller.trace_flags)
    _export(_context(own) if own else new, told)


def _tell(told: Told) -> None:
    """By the API."""
    context = trace.set_span_in_context(NonRecordingSpan(told.parent), Context())
    attributes = dict(told.attributes)
    span = _tracer.start_span(told.name, context, SpanKind.INTERNAL, attributes, start_time=told.begin_ns)
    for event, at_ns in told.events:
        span.add_event(event, timestamp=at_ns)
    if told.error:
        span.set_status(Status(StatusCode.ERROR, told.error))
    span.end(told.end_ns)


def _context(header: str) -> SpanContext:
    """Of a job's header, which has this form: it was checked as the job was read."""
    trace_id, span_id = (int(header[where], 16) for where in _IDS)
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(int(header[_FLAGS], 16)))


def _new_id() -> int:
    return random.getrandbits(64) or 1


def _ns(seconds: float) -> int:
    """As exporters can write it, whatever was read from Redis."""
    return min(max(round(seconds * 1_000_000_000), 0), _LATEST_NS)
