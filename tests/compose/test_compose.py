"""The compose file, without a Docker engine: held against the specification's schema, and its very commands started."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.servers import Server, redis7_binary, valkey_binary
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
ROLES = [name for name in OURS if "profiles" not in SERVICES[name]]


def test_the_file_keeps_to_the_specification() -> None:
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(schema.read_text()))


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_runs_as_root_or_has_a_capability(name: str) -> None:
    service = SERVICES[name]
    assert service["user"].split(":")[0] not in ("0", "root")
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]


@pytest.mark.parametrize("name", ["redis", *OURS])
def test_root_filesystems_are_read_only(name: str) -> None:
    assert SERVICES[name]["read_only"] is True


def test_ports_are_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_has_a_healthcheck_and_a_pinned_image(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]
    assert ":" in SERVICES[name]["image"]
    assert not SERVICES[name]["image"].endswith(":latest")


def test_a_worker_has_time_to_drain() -> None:
    assert all(SERVICES[name]["stop_grace_period"] == "40s" for name in OURS if name.startswith("worker"))


@contextmanager
def role(command: list[str], environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """`tokenfleet COMMAND` as the image's entry point starts it."""
    process = subprocess.Popen(tokenfleet(command), env=environment)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0


def tokenfleet(command: list[str]) -> list[str]:
    return [sys.executable, "-m", "tokenfleet", *command]


@pytest.fixture
def compose_redis(tmp_path: Path) -> Iterator[Server]:
    """The server with the very flags of the file, port and folder apart."""
    program, *flags = SERVICES["redis"]["command"]
    assert program == "redis-server"
    server = Server(redis7_binary() or valkey_binary(), tmp_path, extra=flags)
    server.start()
    yield server
    server.stop()


async def test_the_fleet_of_the_file_serves_a_job(compose_redis: Server) -> None:
    environment = os.environ | SERVICES["scheduler"]["environment"] | {"TOKENFLEET_REDIS_URL": compose_redis.url}

    def run(command: list[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            tokenfleet(command), env=environment, capture_output=True, text=True, timeout=30, check=False
        )

    def healthy(name: str) -> bool:
        kind, program, *check = SERVICES[name]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "tokenfleet")
        return run(check).returncode == 0

    with (
        role(SERVICES["scheduler"]["command"], environment),
        role(SERVICES["worker-1"]["command"], environment),
        role(SERVICES["worker-2"]["command"], environment),
    ):
        for name in ROLES:
            await eventually(partial(healthy, name), timeout_s=20)
        answer = run(["submit", "--model", "demo", "--wait", "--json", "--max-tokens", "8", "Hello"])
        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout.splitlines()[-1])
