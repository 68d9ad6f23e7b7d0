"""Where connections are cut, and the proxy that cuts them."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

BLOCK_BYTES = 65_536
END_OF_EVENT = b"\n\n"


class Kind(StrEnum):
    """What a cut goes through."""

    BEFORE_ALL = "before the first byte"
    BETWEEN = "between two events"
    IN_ID = "in an event's id"
    IN_DATA = "in an event's data"
    IN_CHARACTER = "in a UTF-8 character"
    BEFORE_END = "before an event's blank line"


# What the client still gets of the event that is cut. The engine's text begins each word with a longer character.
_PLACES = {
    Kind.BETWEEN: re.compile(rb""),
    Kind.IN_ID: re.compile(rb"id: [0-9]"),
    Kind.IN_DATA: re.compile(rb"data: \{[^\n]{20}"),
    Kind.IN_CHARACTER: re.compile(rb"data: \{[^\n]*?[\xc2-\xf4](?=[\x80-\xbf])"),
    Kind.BEFORE_END: re.compile(rb"data: \{[^\n]*\n(?=\n)"),
}


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut."""

    kind: Kind
    events: int
    """So many come whole before it."""

    def place(self, wire: bytes) -> int | None:
        """How many bytes of the answer `wire`, as far as it has come, reach the client; None: all of them so far."""
        if self.kind is Kind.BEFORE_ALL:
            return 0
        end = 0
        for _ in range(self.events):
            found = wire.find(END_OF_EVENT, end)
            if found < 0:
                return None
            end = found + len(END_OF_EVENT)
        match = _PLACES[self.kind].search(wire, end)
        return match.end() if match else None


class CuttingProxy:
    """Passes connections on to one server, and cuts the first where it is told to."""

    def __init__(self, target_port: int, cut: Cut | None) -> None:
        """Without a cut it only passes on."""
        self._target_port, self._cut = target_port, cut
        self._tasks: set[asyncio.Task[None]] = set()
        self.made = False
        """Whether the cut took place."""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Listen for the length of a block; yields the port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task, "asyncio serves each connection in a task"  # noqa: S101 - for the type checker
        self._tasks.add(task)
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target_port)
        asking = asyncio.create_task(_pass_on(reader, to_server))
        try:
            # Cancelled at the end; asyncio would write a traceback about that.
            with suppress(asyncio.CancelledError, OSError):
                await self._answer(from_server, writer)
        finally:
            self._tasks.discard(task)
            asking.cancel()
            to_server.transport.abort()
            # What was passed on still arrives: half an event must reach the client to do any harm.
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire, passed = b"", 0
        while data := await reader.read(BLOCK_BYTES):
            wire += data
            place = self._cut.place(wire) if self._cut else None
            writer.write(wire[passed:place])
            await writer.drain()
            passed = len(wire)
            if place is not None:
                self.made = True
                return


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(BLOCK_BYTES):
            writer.write(data)
            await writer.drain()
