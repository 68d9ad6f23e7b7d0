"""What a gateway's process holds for clients that take nothing, in bytes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.gateway.raw import MASKED_PING, RawClient, connected, resident_bytes
from tests.gateway.serving import CHAT, taken
from tests.gateway.test_cli import Running, running
from tests.producer.tiny import Attempt, TinyWorker

PIECE = 2_000 * "x"
PIECES = 1_000
READERS = 30
SMALL = 16 * 1024
MIB = 1024 * 1024
FLOOD_BYTES = 16 * MIB


@pytest.fixture
def gateway(valkey_url: str, worker: TinyWorker) -> Iterator[Running]:
    """A process of its own, in front of the test's worker."""
    del worker
    with running(valkey_url, "--open") as gateway:
        yield gateway


@asynccontextmanager
async def stream(gateway: Running, worker: TinyWorker) -> AsyncIterator[tuple[RawClient, Attempt]]:
    """A client that has its job's first word."""
    body = CHAT | {"stream": True, "fleet": {"keep": True}}
    async with connected(gateway.url, "POST /v1/chat/completions", body) as client:
        attempt = await taken(worker)
        await attempt.say("one ")
        await client.until(b"one ")
        yield client, attempt


@pytest.mark.parametrize("way", ["stream", "ws"])
async def test_readers_that_take_nothing_cost_no_memory(gateway: Running, worker: TinyWorker, way: str) -> None:
    """Unread, each one's events take over 2 MB: together 60. Another reader has all of it meanwhile."""
    async with AsyncExitStack() as stack:
        reading, attempt = await stack.enter_async_context(stream(gateway, worker))
        head = f"GET /v1/requests/{attempt.handle}/{way}"
        for _ in range(READERS):
            idle = await stack.enter_async_context(connected(gateway.url, head, receive_bytes=SMALL))
            await idle.until(b"one ")
        before = resident_bytes(gateway.process.pid)
        async with asyncio.timeout(60):
            for _ in range(PIECES):
                await attempt.say(PIECE)
            await attempt.finish("")
            await reading.until(b"[DONE]")
        grown = resident_bytes(gateway.process.pid) - before
    assert grown < 16 * MIB
    assert reading.text == "one " + PIECES * PIECE


async def test_pings_of_a_client_that_takes_no_answers_cost_no_memory(gateway: Running, worker: TinyWorker) -> None:
    async with stream(gateway, worker) as (_, attempt):
        head = f"GET /v1/requests/{attempt.handle}/ws"
        async with connected(gateway.url, head, receive_bytes=SMALL) as client:
            await client.until(b"one ")
            before = resident_bytes(gateway.process.pid)
            await flooded(client)
            grown = resident_bytes(gateway.process.pid) - before
        assert grown < 4 * MIB


async def flooded(client: RawClient) -> None:
    """Send pings only, and wait until they have gone."""
    block = 100 * MASKED_PING
    async with asyncio.timeout(60):
        for _ in range(FLOOD_BYTES // len(block)):
            client.writer.write(block)
            await client.writer.drain()
