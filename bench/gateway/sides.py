"""The servers that are compared: an engine, our gateway with its fleet in front of it, and two peers."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from bench import parts
from tokenfleet.up.ports import free_port

START_S = 120.0
LITELLM, ROUTER = Path(".venv-litellm/bin/litellm"), Path(".venv-vllm-router/bin/vllm-router")
_LITELLM = """\
model_list:
  - model_name: bench
    litellm_params: {{model: openai/bench, api_base: "http://127.0.0.1:{port}/v1", api_key: none}}
litellm_settings: {{num_retries: 0}}
"""

# As ours with --open: no keys. And nothing is fetched from elsewhere.
_LITELLM_TOLD = {
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
}


@dataclass(frozen=True, slots=True)
class Side:
    """A server that runs."""

    port: int
    process: psutil.Process

    def resident_bytes(self) -> int:
        """What it holds, its children too."""
        family = [self.process, *self.process.children(recursive=True)]
        return sum(one.memory_info().rss for one in family)


Start = Callable[[int], AbstractAsyncContextManager[Side]]
"""Starts a server in front of the engine at this port."""


@asynccontextmanager
async def engine(*more: str) -> AsyncIterator[Side]:
    """The simulated engine over HTTP."""
    port = free_port()
    async with _served([*parts.module("bench.gateway.engine"), "--port", str(port), *more], port) as side:
        yield side


@asynccontextmanager
async def ours(engine_port: int) -> AsyncIterator[Side]:
    """A whole fleet whose worker is attached to the engine, and its gateway."""
    port = free_port()
    async with parts.valkey() as url:
        attach = ["--engine", "openai", "--attach", f"http://127.0.0.1:{engine_port}", "--slots", "2048"]
        worker = parts.tokenfleet(url, "worker", "--model", parts.MODEL, *attach)
        gateway = parts.tokenfleet(url, "gateway", "--open", "--port", str(port))
        with parts.scheduler(url), parts.process(worker, TOKENFLEET_DRAIN_S="0"):
            async with _served(gateway, port, "/v1/models", parts.MODEL) as side:
                yield side


@asynccontextmanager
async def litellm(engine_port: int) -> AsyncIterator[Side]:
    """LiteLLM's proxy."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = _written(Path(folder, "config.yaml"), _LITELLM.format(port=engine_port))
        command = [str(LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--telemetry", "False"]
        async with _served(command, port, "/health/liveliness", **_LITELLM_TOLD) as side:
            yield side


@asynccontextmanager
async def router(engine_port: int) -> AsyncIterator[Side]:
    """The router of vLLM."""
    port, own = free_port(), ["--host", "127.0.0.1", "--prometheus-port", str(free_port())]
    urls = ["--worker-urls", f"http://127.0.0.1:{engine_port}", "--policy", "round_robin"]
    async with _served([str(ROUTER), *urls, *own, "--port", str(port)], port) as side:
        yield side


@asynccontextmanager
async def _served(
    command: Sequence[str], port: int, path: str = "/health", says: str = "", **env: str
) -> AsyncIterator[Side]:
    with parts.process([*command], **env) as child:
        try:
            await _up(port, path, says)
            yield Side(port, psutil.Process(child.pid))
        finally:
            # Streams that are open would hold up a graceful end.
            child.kill()


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


async def _up(port: int, path: str, says: str) -> None:
    """Wait until it answers with 200, and with these words."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(START_S):
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    if answer.status == 200 and says in await answer.text():
                        return
            except aiohttp.ClientConnectionError:
                pass  # it does not listen yet
            await asyncio.sleep(0.1)
