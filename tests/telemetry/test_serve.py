"""Figures over HTTP."""

import socket
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client import Counter

from protocol.errors import SetupError
from telemetry.serve import new_registry, serving


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
