"""A TCP proxy between our processes and Redis: what networks do to traffic, at the test's command."""

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

BLOCK_BYTES = 65_536
LAST_TURNS = 10
# No lingering: closing sends a reset instead of a goodbye.
_RESET = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Link:
    """One connection through the proxy; `asked` is the end of what the client has sent."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    asked: bytes = b""
    doomed: bool = False


class Proxy:
    """Listens for one server; use it as an async context.

    Attributes:
        port: where it listens.
        accepted: loop times of the connections that came.
        latency_s: how long each piece of traffic takes, in each direction.
        slice_bytes: traffic is passed on in pieces of this size; 0 for as it comes.
    """

    def __init__(self, target_port: int, host: str = "127.0.0.1") -> None:
        """Bind to `host` once it is entered."""
        self._target_port, self._host = target_port, host
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._ends: list[asyncio.StreamWriter] = []
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._drop_after = b""
        self.port = 0
        self.dropped = 0
        self.accepted: list[float] = []
        self.latency_s = 0.0
        self.slice_bytes = 0

    @property
    def url(self) -> str:
        """As a Redis URL."""
        return f"redis://{self._host}:{self.port}/0"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        # What was accepted a moment ago is served a few turns of the loop later, and a transport closes its socket in
        # the next one: what is left behind would be found by a later test.
        for _ in range(LAST_TURNS):
            for task in self._serving:
                task.cancel()
            for end in self._ends:
                end.transport.abort()
            await asyncio.sleep(0)

    def point_at(self, port: int) -> None:
        """New connections go to another server; those that stand stay where they are, as after a change in DNS."""
        self._target_port = port

    def cut(self) -> None:
        """End all connections and take none, until `mend`."""
        self._refusing = True
        self.reset()

    def blackhole(self) -> None:
        """Keep all connections open and pass nothing on, until `mend`."""
        self._flowing.clear()

    def mend(self) -> None:
        """Let traffic flow again."""
        self._refusing = False
        self._flowing.set()

    def reset(self) -> None:
        """End each connection with a reset."""
        for link in list(self._links):
            _reset(link)

    def drop_reply(self, word: bytes) -> None:
        """The next request with `word` in it reaches the server; its connection breaks before the reply does."""
        self._drop_after = word

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._serving.add(task)
        self._ends.append(writer)
        self.accepted.append(asyncio.get_running_loop().time())
        try:
            # Cancelled at the end; asyncio would write a traceback about that.
            with suppress(asyncio.CancelledError):
                await self._relay(reader, writer)
        except OSError:
            writer.transport.abort()
        finally:
            self._serving.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            raise ConnectionRefusedError
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._ends.append(server_writer)
        link = _Link(writer, server_writer)
        self._links.add(link)
        pumps = (
            asyncio.create_task(self._pump(reader, server_writer, link, asks=True)),
            asyncio.create_task(self._pump(server_reader, writer, link, asks=False)),
        )
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            for pump in pumps:
                pump.cancel()
            for end in (writer, server_writer):
                # What is on its way still arrives.
                asyncio.get_running_loop().call_later(self.latency_s, end.close)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link, *, asks: bool
    ) -> None:
        while data := await _read(reader):
            await self._flowing.wait()
            if asks:
                self._watch(link, data)
            elif link.doomed:
                self.dropped += 1
                _reset(link)
                return
            size = self.slice_bytes or len(data)
            for first in range(0, len(data), size):
                self._send(writer, data[first : first + size])
                # Each slice in a packet of its own.
                await asyncio.sleep(0)

    def _watch(self, link: _Link, data: bytes) -> None:
        link.asked = (link.asked + data)[-BLOCK_BYTES:]
        if self._drop_after and self._drop_after in link.asked:
            self._drop_after, link.doomed = b"", True

    def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self.latency_s:
            asyncio.get_running_loop().call_later(self.latency_s, writer.write, data)
        else:
            writer.write(data)


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(BLOCK_BYTES)
    except OSError:
        return b""


def _reset(link: _Link) -> None:
    for end in (link.client, link.server):
        if (plug := end.get_extra_info("socket")) is not None and plug.fileno() >= 0:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        end.transport.abort()
