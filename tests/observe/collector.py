"""A collector: takes OTLP over HTTP from any process, and keeps the spans."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Told:
    """A span as it was exported; times in seconds."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    begin_s: float
    end_s: float
    events: dict[str, float]
    about: dict[str, Any]
    error: str


@dataclass
class Collector:
    """Where it listens, and what came."""

    url: str
    spans: list[Told] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        """For a process that is to export here, soon after each span."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "NO_PROXY": "*",
            "no_proxy": "*",
        }

    def of(self, trace: str) -> list[Told]:
        """What stands in this trace, by its begin."""
        return sorted((span for span in self.spans if span.trace == trace), key=lambda span: (span.begin_s, span.end_s))

    def named(self, trace: str, *names: str) -> list[Told]:
        """Those of these names."""
        return [span for span in self.of(trace) if span.name in names]


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector for the length of a block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.spans += read(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()


def read(request: ExportTraceServiceRequest) -> Sequence[Told]:
    """Its spans."""
    return [
        Told(
            service=values(group.resource.attributes)["service.name"],
            name=span.name,
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            begin_s=span.start_time_unix_nano / 1e9,
            end_s=span.end_time_unix_nano / 1e9,
            events={event.name: event.time_unix_nano / 1e9 for event in span.events},
            about=values(span.attributes),
            error=span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else "",
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def values(attributes: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}
