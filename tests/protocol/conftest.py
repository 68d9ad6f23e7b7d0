"""Servers that only these tests need."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Backend, clock_of
from tests.support.servers import Server, free_port, valkey_binary
from tests.support.store_clock import StoreClock


@pytest.fixture
def store_clock(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> StoreClock:
    """As everywhere; fakeredis's time stands still between two turns, however slow the machine is."""
    return clock_of(backend, monkeypatch, frozen=True)


@pytest.fixture
def cluster_node(tmp_path: Path) -> Iterator[Server]:
    """A cluster of one node that has all slots: keys of two slots in one call are refused there."""
    node = Server(valkey_binary(), tmp_path, extra=["--cluster-enabled", "yes", "--cluster-port", str(free_port())])
    node.start()
    with node.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        node.wait_until(lambda: client.cluster("info")["cluster_state"] == "ok")
    node.load_library()
    yield node
    node.stop()
