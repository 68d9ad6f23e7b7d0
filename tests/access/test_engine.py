"""What a worker's own engine listens on: nothing that another machine can reach, and nothing without its key."""

import os
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from producer.fleet import Fleet
from protocol.errors import SetupError
from protocol.settings import Settings
from tests.access.processes import ROOT, STAND_IN, Roles, roles
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet
from worker.engine.options import EngineOptions
from worker.engine.vllm.flags import command

LOOPBACK = ("127.0.0.1", "::1")


def listening(pid: int) -> list[tuple[str, int]]:
    """Addresses that a process or one of its children listens on."""
    mother = psutil.Process(pid)
    family = [mother, *mother.children(recursive=True)]
    found = [connection for one in family for connection in one.net_connections("inet")]
    return [(one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN and one.laddr]


@pytest.mark.parametrize(
    "given",
    [
        *(("--host", "1.2.3.4"), ("--host=1.2.3.4",), ("--hos", "::"), ("--uds", "x"), ("--port", "1")),
        *(("--api-key", "x"), ("--root-path", "/")),
    ],
)
def test_where_the_engine_listens_is_not_the_users_to_say(given: tuple[str, ...]) -> None:
    with pytest.raises(SetupError, match="can't be given to vLLM"):
        command(EngineOptions(model="m", arguments=given), "python", 1, "")


def test_the_command_line_names_the_loopback_address() -> None:
    parts = command(EngineOptions(model="m", arguments=("--max-model-len", "9")), "python", 1234, "")
    assert parts[parts.index("--host") + 1] == "127.0.0.1"
    assert parts.count("--host") == 1


async def test_an_engine_and_its_events_are_out_of_reach_and_want_a_key(valkey_url: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(STAND_IN), str(ROOT)])
    environment = {"TOKENFLEET_REDIS_URL": valkey_url, "TOKENFLEET_DRAIN_S": "1", "PYTHONPATH": path}
    with roles(tmp_path, environment) as made:
        made.start("scheduler", "scheduler")
        made.start("vllm", "worker", "--model", "m", "--engine", "vllm", "--vllm-python", sys.executable)
        async with Fleet(settings=Settings(redis_url=valkey_url)) as fleet:
            await fleet.ready("m", 30)
        _out_of_reach(made)


def _out_of_reach(made: Roles) -> None:
    found = listening(made.running["vllm"].pid)
    assert found
    assert {host for host, _ in found} <= set(LOOPBACK)
    for _, port in found:
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5)
        assert refusal.value.code == 401
        refusal.value.close()
        for host in _own_addresses():
            with socket.socket() as probe:
                assert probe.connect_ex((host, port)) != 0


def _own_addresses() -> list[str]:
    found = [one.address for many in psutil.net_if_addrs().values() for one in many if one.family == socket.AF_INET]
    return [address for address in found if not address.startswith("127.")]


async def test_an_embedded_fleet_listens_on_loopback_only() -> None:
    async with EmbeddedFleet(FleetOptions(engine="sim", model="demo", workers=1)) as fleet:
        await fleet.ready(60)
        found = [address for pid in fleet.pids().values() for address in listening(pid)]
    assert found
    assert {host for host, _ in found} <= set(LOOPBACK)
