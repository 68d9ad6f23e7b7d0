"""Requests that are sent before the one before them is answered."""

import asyncio

import pytest

from producer.gateway import connection
from protocol.wire import dumps
from tests.gateway.serving import CHAT, Served

BODY = dumps(CHAT | {"max_tokens": 1})
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(BODY)


async def test_a_second_request_whose_body_is_slow(sim: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the time for bodies, however soon the first one was answered."""
    monkeypatch.setattr(connection, "LINGER_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sim.url.rpartition(":")[2]))
    writer.write(HEAD + BODY + HEAD + BODY[:-1])
    async with asyncio.timeout(20):
        answer = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(answer.partition(b"content-length: ")[2].partition(b"\r")[0]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await reader.read(1)
        writer.write(BODY[-1:])
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    writer.close()
