"""Figures over HTTP, for Prometheus."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)

from protocol.errors import SetupError

M = TypeVar("M")


def new_registry() -> CollectorRegistry:
    """An empty one, but for the figures of this process: memory, CPU, descriptors."""
    # When each series began doubles their number, and nobody asks.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
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


@contextmanager
def served(port: int, host: str, make: Callable[[CollectorRegistry], M]) -> Iterator[M | None]:
    """A role's metrics, made for a registry of their own and answered while the block runs; None where `port` is 0.

    Raises:
        SetupError: the port can't be opened.
    """
    if not port:
        yield None
        return
    registry = new_registry()
    metrics = make(registry)
    with serving(registry, port, host):
        yield metrics
