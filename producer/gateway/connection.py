"""Connections with bounds: heads of requests that are endless or never come, and readers that take nothing."""

import asyncio
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from producer.gateway.failures import Failure, other_status
from producer.gateway.metrics import Metrics
from producer.gateway.shares import Shares
from protocol.wire import dumps

HEAD_BYTES = 32 * 1024
HEAD_S = 30.0
LINGER_S = 10.0
LINGER_BYTES = 64 * 1024 * 1024
"""What a client may go on to send once its request is refused: most read the answer only when they have sent all."""
UNREAD_BYTES = 16 * 1024
"""What is kept here for a client that has not taken it, before its stream waits; the kernel keeps some beside it."""
REFUSED_S = 1.0
"""How long a client whose head was refused may go on to send."""
STALL_S = 60.0
"""A client that has taken nothing for so long is cut off; it can go on where it stood."""
_TOO_LARGE = other_status(431, f"the request's head has over {HEAD_BYTES} bytes")
_TOO_MANY = Failure(429, "rate_limit_error", "too_many_connections", "your address has too many connections open here")


def site_of(client: tuple[str, int] | None) -> str:
    """Whose a connection is: an IPv4 address, or the network that an IPv6 one stands in, which one host has alone."""
    if client is None:
        return ""
    address = ip_address(client[0].partition("%")[0])
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or ip_network((address, 64), strict=False))
    return str(address)


class _Stalls:
    """Cuts off a reader that takes nothing, and counts as its address's connection until it is lost."""

    transport: asyncio.Transport
    addresses = Shares(0)
    """Replaced for each server."""
    site: str | None = None
    """Whose it counts as; None: nobody's."""
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
        self.counts_no_more()
        super().connection_lost(exc)  # type: ignore[misc]  # as above

    def counts_no_more(self) -> None:
        """Others of its address may have its place."""
        if self.site is not None:
            self.addresses.give_back(self.site)
            self.site = None

    def _let_go(self) -> None:
        if self._stall:
            self._stall.cancel()
            self._stall = None


class BoundedHttp(_Stalls, HttpToolsProtocol):
    """HTTP/1.1 whose heads are bounded in size and time."""

    metrics: Metrics
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None
    _unread_bytes = 0
    _untold_bytes = 0
    """What has come since the parser last told something of this head."""
    _in_head = False
    _in_body = False
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client came, and must say something."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=UNREAD_BYTES)
        # With TLS it has counted since it was taken.
        if self.site is not None or self.counts_for(site_of(self.client)):
            self._wait_for(HEAD_S)
        else:
            self._refuse(_TOO_MANY)

    def counts_for(self, site: str) -> bool:
        """Count as a connection of this address; False where it has as many as it may."""
        if self.addresses.take(site):
            self.site = site
        else:
            self.metrics.refused_connection()
        return self.site is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless it was refused."""
        if self._refused:
            # Closed while it sends, its system would throw our answer away.
            self._pass_over(data)
        elif not self.transport.is_closing():
            if self.timeout_keep_alive_task and not self._timer:
                # Any byte ends uvicorn's wait for the next request: a line's end too, which begins none.
                self._wait_for(HEAD_S)
            self._untold_bytes += len(data)
            super().data_received(data)
            # The parser keeps a header to itself until it is whole, however long it becomes.
            if self._in_head and self._untold_bytes > HEAD_BYTES:
                self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        """A head begins."""
        if self._refused:
            return
        self._in_head = True
        self._head_bytes = self._untold_bytes = 0
        self._wait_for(HEAD_S)
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
        if not self._refused:
            self._stop_waiting()
            self._in_head, self._in_body, self._unread_bytes = False, True, 0
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._refused:
            return
        super().on_body(body)
        if self.cycle.response_complete:
            self._pass_over(body)

    def on_message_complete(self) -> None:
        """All of it is here."""
        if not self._refused:
            self._in_body = False
            self._stop_waiting()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """It is answered, perhaps before all of it was here."""
        super().on_response_complete()
        # The body that comes may be the next request's, which is not answered yet.
        if self._in_body and self.cycle.response_complete:
            self._wait_for(LINGER_S)

    def _fits(self, *parts: bytes) -> bool:
        self._untold_bytes = 0
        self._head_bytes += sum(map(len, parts))
        if self._head_bytes > HEAD_BYTES:
            self._refuse(_TOO_LARGE)
        return not self._refused

    def _refuse(self, failure: Failure) -> None:
        if self._refused:
            return
        self._refused = True
        body = dumps(failure.body)
        told = {"content-type": "application/json", "connection": "close", "content-length": str(len(body))}
        lines = [f"{name}: {value}\r\n" for name, value in (told | failure.headers).items()]
        head = f"HTTP/1.1 {failure.status} {HTTPStatus(failure.status).phrase}\r\n{''.join(lines)}\r\n"
        self.transport.write(head.encode() + body)
        self._stop_waiting()
        self._timer = self.loop.call_later(REFUSED_S, self.transport.close)

    def _pass_over(self, data: bytes) -> None:
        self._unread_bytes += len(data)
        if self._unread_bytes > LINGER_BYTES:
            self.transport.abort()

    def _wait_for(self, seconds: float) -> None:
        """The client has so long for the next part of what it is about to send."""
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


class BoundedWebSocket(_Stalls, WebSocketsSansIOProtocol):
    """A WebSocket."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A connection that was HTTP's until now: it goes on to count for the same address, gone or not."""
        before = transport.get_protocol()
        if isinstance(before, BoundedHttp):
            self.site, before.site = before.site, None
        super().connection_made(transport)

    def handle_ping(self) -> None:
        """Answer it; not for a client that takes nothing: its answers would gather here, as many as it asks for."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()


def for_server(addresses: Shares, metrics: Metrics) -> tuple[type[BoundedHttp], type[BoundedWebSocket]]:
    """The two for one server, whose connections count by address; uvicorn itself makes one of them for each."""

    class Http(BoundedHttp):
        pass

    class Socket(BoundedWebSocket):
        pass

    Http.addresses = Socket.addresses = addresses
    Http.metrics = metrics
    return Http, Socket
