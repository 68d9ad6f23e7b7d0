"""Clients of a gateway that are no library: their sockets are small, and they read when a test says so."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from protocol.wire import dumps, loads

SMALL_BYTES = 4_096
MASKED_PING = bytes([0x89, 0x80 | 125]) + bytes(4) + bytes(125)
"""A ping with the longest payload that one may have, under a mask of zeros."""


@dataclass
class RawClient:
    """One connection that has sent one request."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    wire: bytes = b""
    """What was read so far."""

    async def until(self, word: bytes) -> bytes:
        """Read on until a word has come; yields all that was read."""
        while word not in self.wire:
            data = await self.reader.read(65_536)
            assert data, f"the connection ended before {word!r}"
            self.wire += data
        return self.wire

    @property
    def text(self) -> str:
        """What the events that have come say."""
        chunks = [line[6:] for line in self.wire.split(b"\n") if line.startswith(b"data: {")]
        choices = [choice for chunk in chunks for choice in loads(chunk)["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)


@asynccontextmanager
async def connected(url: str, head: str, body: object = None, *, receive_bytes: int = 0) -> AsyncIterator[RawClient]:
    """Connect, send one request, and stay for the length of a block.

    With `receive_bytes` the kernel takes no more than about so much unasked.
    """
    address = urlsplit(url)
    plug = socket.socket()
    if receive_bytes:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    plug.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plug, (address.hostname, address.port))
    reader, writer = await asyncio.open_connection(sock=plug, limit=SMALL_BYTES)
    data = b"" if body is None else dumps(body)
    length = f"content-length: {len(data)}\r\n" if data else ""
    writer.write(f"{head} HTTP/1.1\r\nhost: localhost\r\n{length}".encode())
    writer.write(UPGRADE if head.endswith("/ws") else b"\r\n" + data)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()
        # A transport closes its socket in the loop's next turn.
        await asyncio.sleep(0)


UPGRADE = (
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)


def resident_bytes(pid: int) -> int:
    """What a process holds of memory."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - a file that is none
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
