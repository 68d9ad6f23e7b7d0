"""Connections with bounds: heads of requests that are endless or never come, and readers that take nothing."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from producer.gateway.failures import other_status
from protocol.wire import dumps

HEAD_BYTES = 32 * 1024
HEAD_S = 30.0
STALL_S = 60.0
"""A client that has taken nothing for so long is cut off; it can go on where it stood."""
_TOO_LARGE = other_status(431, f"the request's head has over {HEAD_BYTES} bytes")


class _Stalls:
    """Cuts off a reader that takes nothing."""

    transport: asyncio.Transport
    _stall: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """The client has not taken what was written."""
        self._stall = asyncio.get_running_loop().call_later(STALL_S, self.transport.abort)
        super().pause_writing()  # type: ignore[misc]  # of the protocol that it is mixed into

    def resume_writing(self) -> None:
        """It has taken most of it."""
        self._let_go()
        super().resume_writing()  # type: ignore[misc]  # as above

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._let_go()
        super().connection_lost(exc)  # type: ignore[misc]  # as above

    def _let_go(self) -> None:
        if self._stall:
            self._stall.cancel()
            self._stall = None


class BoundedHttp(_Stalls, HttpToolsProtocol):
    """HTTP/1.1 whose heads are bounded in size and time."""

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client came, and must say something."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless it was refused."""
        if not self.transport.is_closing():
            super().data_received(data)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._head_bytes = 0
        self._expect_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the path."""
        if self._fits(url):
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if self._fits(name, value):
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Answer it, or refuse it."""
        self._stop_waiting()
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is here."""
        if not self._refused:
            super().on_message_complete()

    def _fits(self, *parts: bytes) -> bool:
        self._head_bytes += sum(map(len, parts))
        if self._head_bytes > HEAD_BYTES and not self._refused:
            self._refused = True
            self._refuse()
        return not self._refused

    def _refuse(self) -> None:
        body = dumps(_TOO_LARGE.body)
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\n"
            f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _expect_head(self) -> None:
        self._stop_waiting()
        self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None


class BoundedWebSocket(_Stalls, WebSocketsSansIOProtocol):
    """A WebSocket."""
