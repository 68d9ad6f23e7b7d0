"""The compose file's very commands, started without a Docker engine: each role under its own Redis user."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from tests.compose.file import ROLES, SERVICES, TEXT
from tests.observe.scraping import Scrape
from tests.support.servers import Server, free_port, redis7_binary, valkey_binary
from tests.support.waiting import eventually


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
def compose_redis(tmp_path: Path, secrets: Path) -> Iterator[Server]:
    """The server with the very flags of the file, port and folders apart."""
    program, *flags = SERVICES["redis"]["command"]
    assert program == "redis-server"
    flags = [flag.replace("/run/secrets", str(secrets)) for flag in flags]
    server = Server(redis7_binary() or valkey_binary(), tmp_path, extra=flags)
    server.start()
    yield server
    server.stop()


@dataclass(frozen=True)
class Site:
    """The network of the file and its mounted secrets, as they are on this machine."""

    redis: Server
    secrets: Path
    metrics: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in ROLES})

    def environment(self, name: str) -> dict[str, str]:
        """A service's own."""
        own, metrics = SERVICES[name]["secrets"]
        assert metrics == "metrics"
        here = {word: self.here(value, own["source"]) for word, value in SERVICES[name]["environment"].items()}
        # Here they share one machine: each takes a port that is free.
        return os.environ | here | {"TOKENFLEET_METRICS_PORT": str(self.metrics[name])}

    def here(self, word: str, user: str = "") -> str:
        """A word of the file with our address of Redis, and where its secrets lie."""
        word = word.replace("@redis:6379", f"@127.0.0.1:{self.redis.port}")
        return word.replace("/run/secrets/redis", str(self.secrets / user)).replace("/run/secrets", str(self.secrets))

    def producer(self) -> dict[str, str]:
        """As the comment at the file's beginning tells producers."""
        told = dict(re.findall(r"^#   (\w+)=(\S+)$", TEXT, re.MULTILINE))
        assert told.keys() == {"TOKENFLEET_REDIS_URL", "TOKENFLEET_REDIS_PASSWORD_FILE"}
        url = told["TOKENFLEET_REDIS_URL"].replace("127.0.0.1:6379", f"127.0.0.1:{self.redis.port}")
        file = self.secrets.parent / told["TOKENFLEET_REDIS_PASSWORD_FILE"]
        return os.environ | {"TOKENFLEET_REDIS_URL": url, "TOKENFLEET_REDIS_PASSWORD_FILE": str(file)}

    def healthy(self, name: str) -> bool:
        """Whether a service's check finds it so."""
        kind, *words = SERVICES[name]["healthcheck"]["test"]
        at = words.index("tokenfleet")
        assert (kind, words[0]) == ("CMD", "env")
        check = [*map(self.here, words[:at]), *tokenfleet(words[at + 1 :])]
        return subprocess.run(check, env=self.environment(name), capture_output=True, check=False).returncode == 0

    def refusals(self) -> "list[dict[str, Any]]":
        """What users were not allowed so far; who does not log in is none."""
        password = (self.secrets / "operator").read_text()
        with Redis(port=self.redis.port, username="operator", password=password) as operator:
            return [entry for entry in operator.acl_log() if entry["username"] != "default"]


async def test_the_fleet_of_the_file_serves_a_job_and_a_batch(
    compose_redis: Server, secrets: Path, tmp_path: Path
) -> None:
    """Each role under its own user, and nothing that it tries is refused."""
    site = Site(compose_redis, secrets)
    store, source = tmp_path / "store", tmp_path / "in.jsonl"
    store.mkdir()  # The image has the folder.
    body = {"model": "demo", "prompt": "Hello", "max_tokens": 4}
    row = {"custom_id": "r1", "method": "POST", "url": "/v1/completions", "body": body}
    source.write_text(json.dumps(row))

    def run(command: list[str]) -> "subprocess.CompletedProcess[str]":
        environment = site.producer()
        return subprocess.run(
            tokenfleet(command), env=environment, capture_output=True, text=True, timeout=30, check=False
        )

    port = free_port()
    with ExitStack() as stack:
        for name in ROLES:
            command = [str(store) if word == "/store" else word for word in SERVICES[name]["command"]]
            command += ["--port", str(port)] if name == "gateway" else []
            stack.enter_context(role(command, site.environment(name)))
        for name in ROLES:
            await eventually(partial(site.healthy, name), timeout_s=20)
        answer = run(["submit", "--model", "demo", "--wait", "--json", "--max-tokens", "8", "Hello"])
        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout.splitlines()[-1])
        chat = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        async with httpx.AsyncClient(trust_env=False) as http:
            asked = await http.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=chat)
        assert asked.json()["usage"]["completion_tokens"] == 4
        submitted = run(["batch", "submit", "-i", str(source), "--store", str(store)])
        assert submitted.returncode == 0, submitted.stderr
        watched = run(["batch", "watch", submitted.stdout.strip()])
        assert watched.returncode == 0, watched.stdout
        for name in ROLES:
            assert Scrape(port if name == "gateway" else site.metrics[name]).own, name
    assert site.refusals() == []


def test_redis_is_shut_to_who_does_not_log_in(compose_redis: Server) -> None:
    with compose_redis.client() as nobody:
        assert nobody.ping()
        with pytest.raises(NoPermissionError):
            nobody.get("x")
