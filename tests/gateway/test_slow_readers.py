"""A client that reads slowly, or not at all, holds neither a worker nor memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from producer.gateway import connection
from protocol.wire import dumps
from tests.gateway.serving import CHAT, SentEvent, Served, events, taken
from tests.producer.tiny import TinyWorker
from tests.support.waiting import eventually

PIECE = 2_000 * "x"
PIECES = 400


@asynccontextmanager
async def reader_of(served: Served) -> AsyncIterator[asyncio.StreamReader]:
    """A stream whose client takes nothing until the reader is read; its own buffer is small."""
    port = int(served.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4_096)
    body = dumps(CHAT | {"stream": True, "fleet": {"keep": True}})
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        % len(body)
    )
    writer.write(head + body)
    yield reader
    writer.close()


async def lines_of(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Without the chunks' sizes, which stand on lines of their own: each event is one chunk at most."""
    while line := await reader.readline():
        yield line.decode().rstrip("\r\n")


async def test_a_reader_that_takes_nothing_delays_nobody_and_misses_nothing(front: Served, worker: TinyWorker) -> None:
    async with reader_of(front) as reader:
        attempt = await taken(worker)
        async with asyncio.timeout(20):
            for number in range(PIECES):
                await attempt.say(f"{number} {PIECE} ")
            await attempt.finish("")
        got = [event async for event in events(lines_of(wide(reader)))]
    assert [text_number(event) for event in got if event.text] == list(range(PIECES))


async def test_a_reader_that_takes_nothing_for_long_is_cut_off(
    front: Served, worker: TinyWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALL_S", 0.2)
    async with reader_of(front):
        attempt = await taken(worker)
        for number in range(PIECES):
            await attempt.say(f"{number} {PIECE} ")
        await eventually(lambda: len(front.gateway.stays) == 0)


def wide(reader: asyncio.StreamReader) -> asyncio.StreamReader:
    """From here on it takes whole lines."""
    reader._limit = 1 << 20  # type: ignore[attr-defined]  # there is no other way to widen it
    return reader


def text_number(event: SentEvent) -> int:
    return int(event.text.split()[0])
