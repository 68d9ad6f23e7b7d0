"""Figures over HTTP, for Prometheus."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from socketserver import TCPServer
from threading import Thread
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from protocol.errors import SetupError
from protocol.log import get_logger
from telemetry.instruments import Registry

PATH = "/metrics"
FORMAT = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE_S = 10.0
"""How long a scraper may take to ask."""
M = TypeVar("M")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler], role: str) -> None:
        self._log = get_logger(role)
        self.address_family = AF_INET6 if ":" in host else AF_INET
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Without asking the name service who we are, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """In place of a traceback as plain text; most often the scraper has gone before its answer."""
        del request, client_address
        self._log.warning("scrape_failed", kind=type(sys.exception()).__name__)


def new_registry() -> Registry:
    """An empty one, but for the figures of this process: memory, CPU, descriptors."""
    # When each series began doubles their number, and nobody asks.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
    registry = Registry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def page(registry: CollectorRegistry) -> bytes:
    """All that is registered, in Prometheus's text format."""
    if isinstance(registry, Registry):
        return generate_latest(registry.others) + registry.text().encode()
    return generate_latest(registry)


@contextmanager
def serving(registry: CollectorRegistry, port: int, host: str = "127.0.0.1", role: str = "metrics") -> Iterator[int]:
    """Answer `GET /metrics` from a thread of its own while the block runs; yields the port (0 takes a free one).

    `role` is named in log lines.

    Raises:
        SetupError: the port can't be opened.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self.send_error(404)
                return
            body = page(registry)
            self.send_response(200)
            self.send_header("content-type", FORMAT)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
            """Nobody asks who scrapes."""

    try:
        server = _Server(host, port, Handler, role)
    except OSError as error:
        raise SetupError(
            f"can't serve metrics on {host}:{port}: {error.strerror}", "Choose another with --metrics-port."
        ) from None
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def served(role: str, port: int, host: str, make: Callable[[CollectorRegistry], M]) -> Iterator[M | None]:
    """A role's metrics, made for a registry of their own and answered while the block runs; None where `port` is 0.

    Raises:
        SetupError: the port can't be opened.
    """
    if not port:
        yield None
        return
    registry = new_registry()
    metrics = make(registry)
    with serving(registry, port, host, role):
        yield metrics
