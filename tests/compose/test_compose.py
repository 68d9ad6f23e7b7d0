"""The compose file, without a Docker engine: held against the specification's schema, and its very commands started."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from protocol.settings import Settings
from tests.support.servers import Server, redis7_binary, valkey_binary
from tests.support.waiting import eventually
from tokenfleet.cli.durations import seconds_of
from tokenfleet.cli.worker import command as worker_command

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
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


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_reaches_into_the_host(name: str) -> None:
    service = SERVICES[name]
    assert not {"privileged", "cap_add", "devices", "pid", "network_mode", "userns_mode"} & service.keys()
    # A folder of the host's only where the caller names one; never the engine's own socket.
    mounts = [volume for volume in service.get("volumes", []) if volume.startswith(("/", ".", "~"))]
    assert not mounts
    # torch's processes share memory; nobody else may.
    assert ("ipc" in service) == (name == "worker-gpu")


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_stands_in_the_file(name: str) -> None:
    service = SERVICES[name]
    values = [*service.get("environment", {}).values(), *service.get("command", [])]
    assert not [value for value in values if "@" in str(value) or "password" in str(value).lower()]
    secret = [key for key in service.get("environment", {}) if key.endswith(("TOKEN", "KEY", "PASSWORD"))]
    assert all(service["environment"][key].startswith("${") for key in secret)


def test_the_images_are_pinned_and_end_without_root() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    bases = [stage.split(maxsplit=1)[0] for stage in stages]
    assert all(":" in base and not base.endswith(":latest") for base in bases)
    served = [stage for stage in stages if "ENTRYPOINT" in stage]
    users = [re.findall(r"^USER (\d+):", stage, re.MULTILINE)[-1] for stage in served]
    assert len(users) == 2
    assert "0" not in users
    # What is left out of the build can't end up in an image.
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv"} <= {line.strip("/") for line in ignored}


def test_a_worker_has_time_to_drain() -> None:
    grace_s = [seconds_of(SERVICES[name]["stop_grace_period"]) for name in OURS if name.startswith("worker")]
    assert min(grace_s) >= Settings().drain_s + 10


def test_the_gpu_profile_keeps_to_the_conventions_of_vllms_image() -> None:
    gpu = SERVICES["worker-gpu"]
    assert [name for name in SERVICES if "profiles" in SERVICES[name]] == ["worker-gpu"]
    assert (gpu["profiles"], gpu["ipc"], gpu["user"]) == (["gpu"], "host", "2000:0")
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    homes = dict(volume.rsplit(":", 1)[::-1] for volume in gpu["volumes"])
    assert {"/home/vllm", "/home/vllm/.cache/huggingface"} == homes.keys()
    assert f"FROM vllm/vllm-openai:v0.33.0 AS {gpu['build']['target']}\n" in DOCKERFILE


@pytest.mark.parametrize("name", [name for name in OURS if name.startswith("worker")])
def test_the_command_of_a_worker_is_one(name: str) -> None:
    """Every flag is the worker's, up to `--`."""
    word, *arguments = SERVICES[name]["command"]
    assert word == "worker"
    # It stands in the image; here another one may be.
    arguments = [sys.executable if argument == "/usr/bin/python3" else argument for argument in arguments]
    with worker_command.make_context("worker", arguments) as context:
        assert context.params["models"]


def test_the_images_say_what_is_in_them() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in OURS:
        assert SERVICES[name]["image"].endswith(f":{version}")
    assert DOCKERFILE.count('ENTRYPOINT ["tokenfleet"]') == 2
    assert DOCKERFILE.count("--require-hashes") == 2


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


def test_the_store_is_a_volume_that_the_runner_may_write_to() -> None:
    (mount,) = SERVICES["batch-runner"]["volumes"]
    volume, folder = mount.split(":")
    assert volume in COMPOSE["volumes"]
    owner = SERVICES["batch-runner"]["user"].split(":")[0]
    assert f"RUN install -d -o {owner} -g {owner} -m 0700 {folder}\n" in DOCKERFILE


async def test_the_fleet_of_the_file_serves_a_job_and_a_batch(compose_redis: Server, tmp_path: Path) -> None:
    store, source = tmp_path / "store", tmp_path / "in.jsonl"
    store.mkdir()  # The image has the folder.
    runner = [str(store) if word == "/store" else word for word in SERVICES["batch-runner"]["command"]]
    body = {"model": "demo", "prompt": "Hello", "max_tokens": 4}
    row = {"custom_id": "r1", "method": "POST", "url": "/v1/completions", "body": body}
    source.write_text(json.dumps(row))
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
        role(runner, environment),
    ):
        for name in ROLES:
            await eventually(partial(healthy, name), timeout_s=20)
        answer = run(["submit", "--model", "demo", "--wait", "--json", "--max-tokens", "8", "Hello"])
        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout.splitlines()[-1])
        submitted = run(["batch", "submit", "-i", str(source), "--store", str(store)])
        assert submitted.returncode == 0, submitted.stderr
        watched = run(["batch", "watch", submitted.stdout.strip()])
        assert watched.returncode == 0, watched.stdout
