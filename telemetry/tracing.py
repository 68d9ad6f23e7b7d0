"""Traces by OpenTelemetry's API. Without its SDK, the extra `otel`, all of this does nothing, and costs next to it."""

import asyncio
import atexit
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_HEADER = "traceparent"
_FLAGS = slice(54, 55)
_SAMPLED = frozenset("13579bdf")
"""Where W3C's header has the last digit of its flags, and what that is in a trace that is recorded."""
_LATEST_NS = 2**63 - 1
_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("tokenfleet")
TOGETHER_S, TOGETHER = 1.0, 32
"""How long a role keeps what it has to tell of spans, and how many: one alone, amid other work, costs five of these."""
_kept: list[Callable[[], None]] | None = None
"""None: all is told at once, as in a producer's process."""
Attributes = Mapping[str, str | int | float]
"""Of bounded kinds; never a prompt."""


def start(role: str) -> bool:
    """Export this process's spans where the environment names a collector and the SDK is installed; whether it does."""
    if not any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        return False
    try:
        from telemetry.exporting import provider_for
    except ImportError:
        return False
    global _kept  # noqa: PLW0603 - a process has one provider, too
    _kept = []
    trace.set_tracer_provider(provider_for(role))
    # Before the provider's own exit, which was registered first.
    atexit.register(_tell_kept)
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
    return traceparent[_FLAGS] in _SAMPLED


def begin(name: str, parent: str, begin_s: float, attributes: Attributes) -> Span | None:
    """A span that goes on, for `end`; None where the parent names nothing, or its sampler has left it out.

    Its arguments are those of `span`.
    """
    if not recorded(parent):
        return None
    # A job's has this form: it was checked as the job was read.
    ids, flags = (int(parent[3:35], 16), int(parent[36:52], 16)), TraceFlags(int(parent[53:55], 16))
    caller = SpanContext(*ids, is_remote=True, trace_flags=flags)
    if not caller.is_valid:
        return None
    context = trace.set_span_in_context(NonRecordingSpan(caller), Context())
    return _tracer.start_span(name, context, SpanKind.INTERNAL, attributes=dict(attributes), start_time=_ns(begin_s))


def end(told: Span | None, end_s: float, events: Sequence[tuple[str, float]] = (), error: str = "") -> None:
    """End what `begin` began, or nothing. The arguments are those of `span`."""
    if told:
        _tell(lambda: _end(told, end_s, events, error))


def span(
    name: str,
    parent: str,
    begin_s: float,
    end_s: float,
    *,
    attributes: Attributes | None = None,
    events: Sequence[tuple[str, float]] = (),
    error: str = "",
) -> None:
    """Record what has happened already, under the caller's trace; nothing where it has none.

    Args:
        name: of the span.
        parent: the job's `traceparent`.
        begin_s: in seconds since 1970.
        end_s: likewise.
        attributes: what it is about.
        events: names and times within it.
        error: a code, where it failed.
    """
    if recorded(parent):
        _tell(lambda: _end(begin(name, parent, begin_s, attributes or {}), end_s, events, error))


def _end(told: Span | None, end_s: float, events: Sequence[tuple[str, float]], error: str) -> None:
    if told is None:
        return
    for event, at_s in events:
        told.add_event(event, timestamp=_ns(at_s))
    if error:
        told.set_status(Status(StatusCode.ERROR, error))
    told.end(_ns(end_s))


def _tell(call: Callable[[], None]) -> None:
    """Now, or soon and together with others."""
    if _kept is None:
        call()
        return
    _kept.append(call)
    if len(_kept) >= TOGETHER:
        _tell_kept()
    elif len(_kept) == 1:
        # Without a loop: with the next ones, or at the end.
        with suppress(RuntimeError):
            asyncio.get_running_loop().call_later(TOGETHER_S, _tell_kept)


def _tell_kept() -> None:
    while _kept:
        _kept.pop(0)()


def _ns(seconds: float) -> int:
    """As exporters can write it, whatever was read from Redis."""
    return min(max(round(seconds * 1_000_000_000), 0), _LATEST_NS)
