"""Clients that cost little: bytes over a connection each, looked at only where a figure comes from them."""

import asyncio
import random
import resource
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self, cast

from protocol.wire import JsonObject, dumps

PATH = "/v1/chat/completions"
SHORTEST, LONGEST = 20, 32
"""Tokens of an answer: different ones, so that the streams do not march in step."""
PAUSE_S = 0.1
"""A client waits up to so long between its chats: engines that step give a token only at a step's end."""
LONGEST_S = 60.0
AT_ONCE = 50
"""So many idle streams are opened together."""
_EVENT, _DONE, _END = b"data: {", b"data: [DONE]", b"\r\n0\r\n\r\n"
_WHOLE = b'"finish_reason":"length"'


@dataclass(frozen=True, slots=True)
class Chat:
    """One request and when its answer began."""

    name: str
    first_s: float
    """From its sending to the first byte of its first event."""


def limit_files() -> None:
    """As many open files as this process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def body_of(name: str, tokens: int) -> JsonObject:
    """A chat of exactly so many tokens, which says its name."""
    message = {"role": "user", "content": name}
    return {"model": "bench", "messages": [message], "max_tokens": tokens, "ignore_eos": True, "stream": True}


@dataclass(slots=True)
class Line(asyncio.Protocol):
    """One kept-alive connection, one chat after the other."""

    host: str
    _transport: asyncio.Transport | None = None
    _heard: bytearray = field(default_factory=bytearray)
    _sent_s: float = 0.0
    _first_s: float = 0.0
    first: "asyncio.Future[float]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _end: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to a server of this machine."""
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(lambda: cls(f"127.0.0.1:{port}"), "127.0.0.1", port)
        return line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        # uvloop's transports are none by their class.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits is told."""
        for waiting in (self.first, self._end):
            if not waiting.done():
                waiting.set_exception(exc or ConnectionError("closed"))
                waiting.exception()

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        self._heard += data
        if not self.first.done() and _EVENT in self._heard:
            self.first.set_result(time.perf_counter() - self._sent_s)
        if self._heard.endswith(_END) and not self._end.done():
            self._end.set_result(None)

    def ask(self, body: JsonObject) -> None:
        """Send a chat."""
        loop = asyncio.get_running_loop()
        self._heard.clear()
        self.first, self._end = loop.create_future(), loop.create_future()
        data = dumps(body)
        head = f"POST {PATH} HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\n"
        more = f"authorization: Bearer none\r\ncontent-length: {len(data)}\r\n\r\n"
        self._sent_s = time.perf_counter()
        if self._transport:
            self._transport.write(head.encode() + more.encode() + data)

    async def chat(self, name: str, tokens: int) -> Chat:
        """Ask and hear the whole answer.

        Raises:
            RuntimeError: it is not complete.
        """
        self.ask(body_of(name, tokens))
        async with asyncio.timeout(LONGEST_S):
            await self._end
        if _WHOLE not in self._heard or _DONE not in self._heard:
            raise RuntimeError(f"no whole answer, at last {self._heard[-300:]!r}")
        return Chat(name, self.first.result())

    def close(self) -> None:
        """Leave."""
        if self._transport:
            self._transport.abort()


async def load(port: int, label: str, streams: int, chats: int) -> list[Chat]:
    """So many streams at once, each of which chats so many times."""
    async with AsyncExitStack() as stack:
        lines = [await Line.open(port) for _ in range(streams)]
        for line in lines:
            stack.callback(line.close)
        said = await asyncio.gather(*(_stream(line, f"{label} {n}", chats) for n, line in enumerate(lines)))
    return [chat for chats_of_one in said for chat in chats_of_one]


async def _stream(line: Line, label: str, chats: int) -> list[Chat]:
    chance = random.Random(label)
    done = []
    for number in range(chats):
        await asyncio.sleep(chance.uniform(0, PAUSE_S))
        done.append(await line.chat(f"{label} {number}", chance.randint(SHORTEST, LONGEST)))
    return done


async def idle(port: int, count: int) -> Sequence[Line]:
    """Open so many streams and hear the first event of each."""
    lines: list[Line] = []
    for begin in range(0, count, AT_ONCE):
        some = [await Line.open(port) for _ in range(min(AT_ONCE, count - begin))]
        for number, line in enumerate(some):
            line.ask(body_of(f"idle {begin + number}", 2))
        async with asyncio.timeout(LONGEST_S):
            await asyncio.gather(*(line.first for line in some))
        lines += some
    return lines
