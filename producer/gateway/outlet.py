"""Server-sent events over one HTTP response: begun late, kept alive, and never faster than its reader."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Send

from producer.gateway.relay import Message

HOLD_S = 2.0
"""A job that ends within this time without a token is told by its status; after it the stream begins anyhow."""
# No blank line after it: clients take that, with an id that they have kept, for an event without data.
COMMENT = b": still here\n"


@dataclass(frozen=True, slots=True)
class Pace:
    """When a silent stream says something."""

    hold_s: float = HOLD_S
    keep_alive_s: float = 10.0


class Outlet:
    """What one client hears. Each write waits until the client has taken most of what was written before."""

    def __init__(self, send: Send, pace: Pace, headers: dict[str, str]) -> None:
        """Nothing is sent before the first write, or the end of the hold."""
        self._send = send
        self._pace = pace
        self._headers = [(name.encode(), value.encode()) for name, value in (HEADERS | headers).items()]
        self._loop = asyncio.get_running_loop()
        self._spoke_at = self._loop.time()
        self._beat: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(pace.hold_s, self._on_timer)
        self.begun = False

    async def write(self, messages: Sequence[Message], *, last: bool = False) -> None:
        """Send some events; with `last` the response ends."""
        if not messages and not last:
            return
        await self._begin()
        self._spoke_at = self._loop.time()
        body = b"".join(map(encoded, messages))
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})

    def close(self) -> None:
        """Say nothing more by itself."""
        self._timer.cancel()
        if self._beat:
            self._beat.cancel()

    async def _begin(self) -> None:
        if not self.begun:
            self.begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})

    def _on_timer(self) -> None:
        silent_s = self._loop.time() - self._spoke_at
        due = not self.begun or silent_s >= self._pace.keep_alive_s
        # One that still waits for a slow reader is enough.
        if due and (self._beat is None or self._beat.done()):
            self._beat = self._loop.create_task(self._comment())
            silent_s = 0.0
        self._timer = self._loop.call_later(max(0.01, self._pace.keep_alive_s - silent_s), self._on_timer)

    async def _comment(self) -> None:
        await self._begin()
        self._spoke_at = self._loop.time()
        await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})


HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    # Proxies would gather what is meant to come at once.
    "x-accel-buffering": "no",
}


def encoded(message: Message) -> bytes:
    """One event as the wire has it. Its data is JSON on one line."""
    name = f"event: {message.name}\n".encode() if message.name else b""
    place = f"id: {message.id}\n".encode() if message.id else b""
    return b"%b%bdata: %b\n\n" % (name, place, message.data)
