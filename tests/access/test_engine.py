"""What a worker's own engine listens on: nothing that another machine can reach, and nothing without its key."""

import os
import stat
import sys
from pathlib import Path

import psutil
import pytest

from producer.fleet import Fleet
from protocol.errors import SetupError
from protocol.settings import Settings
from tests.access.processes import ROOT, STAND_IN, Roles, roles
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet
from worker.engine.openai_http import Upstream
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
        command(EngineOptions(model="m", arguments=given), "python", "sock", "")


def test_the_command_line_names_a_socket_and_the_loopback_address_for_all_else() -> None:
    parts = command(EngineOptions(model="m", arguments=("--max-model-len", "9")), "python", "sock", "")
    assert parts[parts.index("--host") + 1] == "127.0.0.1"
    assert parts[parts.index("--uds") + 1] == "sock"
    assert (parts.count("--host"), parts.count("--uds"), parts.count("--port")) == (1, 1, 0)


async def test_an_engine_and_its_events_are_out_of_reach_and_want_a_key(valkey_url: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(STAND_IN), str(ROOT)])
    environment = {"TOKENFLEET_REDIS_URL": valkey_url, "TOKENFLEET_DRAIN_S": "1", "PYTHONPATH": path}
    with roles(tmp_path, environment) as made:
        made.start("scheduler", "scheduler")
        made.start("vllm", "worker", "--model", "m", "--engine", "vllm", "--vllm-python", sys.executable)
        async with Fleet(settings=Settings(redis_url=valkey_url)) as fleet:
            await fleet.ready("m", 30)
        made.look()
        await _out_of_reach(made)


async def _out_of_reach(made: Roles) -> None:
    mother = made.running["vllm"].pid
    assert listening(mother) == [(LOOPBACK[0], made.ports["vllm"])], "its metrics"
    words = [word for line in made.seen for word in line.split()]
    socket = Path(words[words.index("--uds") + 1])
    _is_private(socket)
    engine = Upstream(f"unix://{socket}")
    assert (await engine.get("/v1/models"))[0] == 401
    assert (await engine.call("GET", "/health"))[0] == 200
    await engine.close()


def _is_private(socket: Path) -> None:
    assert stat.S_ISSOCK(socket.stat().st_mode)
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700


async def test_an_embedded_fleet_listens_on_loopback_only() -> None:
    async with EmbeddedFleet(FleetOptions(engine="sim", model="demo", workers=1)) as fleet:
        await fleet.ready(60)
        found = [address for pid in fleet.pids().values() for address in listening(pid)]
    assert found
    assert {host for host, _ in found} <= set(LOOPBACK)
