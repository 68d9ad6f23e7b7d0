"""Figures over HTTP."""

import socket
from collections.abc import Iterator
from http.client import RemoteDisconnected
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.registry import Collector
from structlog.testing import capture_logs

from protocol.errors import SetupError
from telemetry.serve import new_registry, served, serving
from tests.support.servers import free_port


def _scraped(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text: bytes = answer.read()
    return text.decode()


def test_a_scrape_tells_what_was_counted_and_what_the_process_takes() -> None:
    registry = new_registry()
    Counter("seen", "Things seen.", registry=registry).inc(3)
    with serving(registry, 0) as port:
        told = _scraped(port)
    assert "seen_total 3.0" in told
    assert "process_resident_memory_bytes" in told


def test_after_the_block_nobody_answers() -> None:
    with serving(new_registry(), 0) as port:
        pass
    with pytest.raises(URLError):
        _scraped(port)


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=f"127.0.0.1:{port}"), serving(new_registry(), port):
            pass


def test_a_figure_that_can_t_be_read_is_one_line_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    class Broken(Collector):
        def collect(self) -> Iterator[Metric]:
            raise ZeroDivisionError("a prompt")

    def register(registry: CollectorRegistry) -> None:
        registry.register(Broken())

    serves = served("worker", port := free_port(), "127.0.0.1", register)
    # The line is written before the connection is closed.
    with capture_logs() as lines, serves, pytest.raises(RemoteDisconnected):
        _scraped(port)
    assert lines == [{"event": "scrape_failed", "role": "worker", "kind": "ZeroDivisionError", "log_level": "warning"}]
    assert capfd.readouterr() == ("", "")


def test_without_a_port_there_are_no_metrics() -> None:
    with served("worker", 0, "127.0.0.1", lambda registry: registry) as metrics:
        assert metrics is None


def test_metrics_are_those_of_the_registry_that_is_served() -> None:
    with served(
        "worker", port := free_port(), "127.0.0.1", lambda own: Counter("seen", "Seen.", registry=own)
    ) as metrics:
        assert metrics is not None
        metrics.inc(2)
        told = _scraped(port)
    assert "seen_total 2.0" in told
    assert "seen_created" not in told
