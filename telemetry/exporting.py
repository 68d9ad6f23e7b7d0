"""OpenTelemetry's SDK: spans go to a collector over OTLP/HTTP, in the background. Needs the extra `otel`."""

import atexit
import logging
import os
import threading
import time
from contextlib import suppress
from functools import partial

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode

from protocol.log import get_logger
from telemetry.tracing import Export, Told

EXPORT_S = 5.0
"""How long one batch of spans may take to reach the collector."""
FLUSH_S = 3.0
"""How long a process that ends waits for what it has not sent."""
TOLD_EVERY_S = 60.0
_SCOPE, _WELL = InstrumentationScope("tokenfleet"), Status(StatusCode.UNSET)
_TIMEOUT_VARIABLES = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")


def exporting(role: str) -> Export:
    """Of a process in this role; the environment says where the collector is, as OpenTelemetry's pages tell."""
    _tell_failures(role)
    service = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"tokenfleet-{role}"}
    given = any(os.environ.get(name) for name in _TIMEOUT_VARIABLES)
    exporter = OTLPSpanExporter(timeout=None if given else EXPORT_S)
    processor = BatchSpanProcessor(exporter)
    atexit.register(_flush, processor, exporter)
    return partial(pass_on, processor, Resource.create(service))


def pass_on(processor: SpanProcessor, resource: Resource, own: SpanContext, told: Told) -> None:
    """Give the SDK a span that is over: to have it begun and ended by a tracer takes far longer."""
    span = ReadableSpan(
        told.name,
        own,
        told.parent,
        resource,
        told.attributes,
        [Event(name, timestamp=at_ns) for name, at_ns in told.events],
        status=Status(StatusCode.ERROR, told.error) if told.error else _WELL,
        start_time=told.begin_ns,
        end_time=told.end_ns,
        instrumentation_scope=_SCOPE,
    )
    processor.on_end(span)


def _flush(processor: BatchSpanProcessor, exporter: OTLPSpanExporter) -> None:
    """Send what is left. By itself the SDK waits for half a minute for a collector that is away."""
    giving_up = threading.Timer(FLUSH_S, exporter.shutdown)
    giving_up.daemon = True
    # Some versions of Python start no threads any more at this point.
    with suppress(RuntimeError):
        giving_up.start()
    processor.shutdown()  # type: ignore[no-untyped-call]  # likewise
    giving_up.cancel()


def _tell_failures(role: str) -> None:
    """The SDK's own lines are plain text, one a batch: ours is one a minute."""
    logger = logging.getLogger("opentelemetry")
    logger.handlers, logger.propagate = [_Failures(role)], False


class _Failures(logging.Handler):
    """Tells that spans are lost. What the SDK says may name the collector's address, with a key in it."""

    def __init__(self, role: str) -> None:
        super().__init__(logging.WARNING)
        self._log, self._next_s = get_logger(role), 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """At most once a minute."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + TOLD_EVERY_S
            self._log.warning("traces_not_exported", kind=record.module)
