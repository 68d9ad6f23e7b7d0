"""A gateway with a fleet behind it, each role a process, and OpenAI's Python client in front of it."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from openai import OpenAI

from producer.fleet import Fleet
from producer.keys import create_key
from protocol.limits import Limits
from protocol.settings import Settings
from protocol.states import Priority
from tests.support.servers import Server, free_port, valkey_binary
from tests.support.waiting import eventually
from tests.vllm.roles import running

MODEL, ASLEEP = "m", "asleep"
"""The second one's only worker is on standby: its jobs wait."""
START_S = 90.0
CONTEXT_TOKENS = 131_072
STRICT = {
    "TOKENFLEET_ADMISSION_LOW": "refuse",
    "TOKENFLEET_LIMIT_LOW": "4",
    "TOKENFLEET_SCALE": "off",
    "TOKENFLEET_REDIS_PATIENCE_S": "5",
}
"""Of the lane `low` alone, so that busy machines refuse none of the others; a tenant may fill half of it."""
CHAT: Final[dict[str, Any]] = {"model": MODEL, "messages": [{"role": "user", "content": "tell me of the sea"}]}


@dataclass(frozen=True)
class Front:
    """Where the gateway is, and who may come in: a key for each name."""

    url: str
    keys: Mapping[str, str]

    def client(self, key: str = "all", **more: Any) -> OpenAI:
        """OpenAI's own client, which tries nothing again; close it."""
        how = {"max_retries": 0, "timeout": 60.0, **more}
        return OpenAI(base_url=f"{self.url}/v1", api_key=self.keys.get(key, key), **how)

    def http(self, key: str = "all") -> httpx.Client:
        """What is on the wire; close it."""
        headers = {"authorization": f"Bearer {self.keys[key]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)


@contextmanager
def front_of(folder: Path) -> Iterator[Front]:
    """All processes on the simulated engine, once they are up."""
    server, port = Server(valkey_binary(), folder), free_port()
    server.start()
    try:
        server.load_library()
        (folder / "store").mkdir()
        store = str(folder / "store")
        worker = ["worker", "--engine", "sim", "--slots", "8", "--context", str(CONTEXT_TOKENS)]
        roles = {
            "scheduler": ["scheduler"],
            "worker": [*worker, "--model", MODEL],
            "standby": [*worker, "--model", ASLEEP, "--standby"],
            "runner": ["batch-runner", "--store", store],
        }
        environment = STRICT | {"TOKENFLEET_REDIS_URL": server.url}
        with ExitStack() as stack:
            for name, arguments in roles.items():
                stack.enter_context(running(folder / f"{name}.log", arguments, environment))
            with gateway_of(folder, server.url, port, "--store", store, "--leave", "0.1") as front:
                yield front
    finally:
        server.stop()


@contextmanager
def gateway_of(folder: Path, redis_url: str, port: int, *options: str) -> Iterator[Front]:
    """A gateway's process for a fleet that is about to come up, with keys for whoever asks it."""
    keys = asyncio.run(_keys(redis_url))
    arguments = ["gateway", "--port", str(port), "--grace", "0", *options]
    with running(folder / "gateway.log", arguments, {"TOKENFLEET_REDIS_URL": redis_url}) as role:
        front = Front(f"http://127.0.0.1:{port}", keys)

        def ready() -> bool:
            assert role.process.poll() is None, role.words()
            with suppress(httpx.TransportError), front.http() as http:
                return http.get("/ready").status_code == 200
            return False

        asyncio.run(eventually(ready, START_S))
        yield front


async def _keys(redis_url: str) -> dict[str, str]:
    made: dict[str, dict[str, Any]] = {
        "all": {"tenant": "acme"},
        "stranger": {"tenant": "stranger"},
        "low": {"tenant": "acme", "priorities": [Priority.LOW]},
        "narrow": {"tenant": "acme", "models": ["another"]},
        "one": {"tenant": "acme", "limits": Limits(jobs=1, requests_a_minute=10_000)},
        "one-npm": {"tenant": "acme", "limits": Limits(jobs=1, requests_a_minute=10_000)},
        "full": {"tenant": "full"},
        "full-npm": {"tenant": "full-npm"},
    }
    async with Fleet(settings=Settings(redis_url=redis_url)) as fleet:
        return {name: (await create_key(fleet, **how))[0] for name, how in made.items()}
