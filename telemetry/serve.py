"""Figures over HTTP, for Prometheus."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server

from protocol.errors import SetupError


def new_registry() -> CollectorRegistry:
    """An empty one, but for the figures of this process: memory, CPU, descriptors."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


@contextmanager
def serving(registry: CollectorRegistry, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Answer `GET /metrics` from a thread of its own while the block runs; yields the port (0 takes a free one).

    Raises:
        SetupError: the port can't be opened.
    """
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise SetupError(
            f"can't serve metrics on {host}:{port}: {error.strerror}", "Choose another with --metrics-port."
        ) from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
