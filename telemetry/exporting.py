"""OpenTelemetry's SDK: spans go to a collector over OTLP/HTTP, in the background. Needs the extra `otel`."""

import atexit
import logging
import os
import threading
import time
from contextlib import suppress

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from protocol.log import get_logger

EXPORT_S = 5.0
"""How long one batch of spans may take to reach the collector."""
FLUSH_S = 3.0
"""How long a process that ends waits for what it has not sent."""
TOLD_EVERY_S = 60.0
_TIMEOUT_VARIABLES = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")


def provider_for(role: str) -> TracerProvider:
    """Of a process in this role; the environment says where the collector is, as OpenTelemetry's pages tell."""
    _tell_failures(role)
    service = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"tokenfleet-{role}"}
    given = any(os.environ.get(name) for name in _TIMEOUT_VARIABLES)
    exporter = OTLPSpanExporter(timeout=None if given else EXPORT_S)
    processor = BatchSpanProcessor(exporter)
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    atexit.register(_flush, processor, exporter)
    return provider


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
