"""A wire between a process and its Redis that can be cut: both ends stay open, and nothing comes through."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.servers import Server

CHUNK = 65_536


class Wire:
    """Passes bytes on, until it is cut."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._whole = asyncio.Event()
        self._whole.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self) -> None:
        self._whole.clear()

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        self._ends |= {writer, far_writer}
        with suppress(OSError):
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, far_writer))
                both.create_task(self._pass_on(far_reader, writer))

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK):
            await self._whole.wait()
            target.write(data)
        target.close()

    def close(self) -> None:
        for end in self._ends:
            end.transport.abort()


@asynccontextmanager
async def a_wire(server: Server) -> AsyncIterator[Wire]:
    wire = Wire(server)
    listener = await asyncio.start_server(wire.join, "127.0.0.1", 0)
    wire.port = listener.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        listener.close()
        wire.close()
