"""Connections to one server, kept from one request to the next; a server may close a kept one whenever it likes."""

import asyncio
import select
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from worker.engine.base import EngineDead

KEPT_S = 4.0
"""So long an idle connection is kept: most servers close it after 5 s."""
AGAIN_S = 0.5
"""That a server had closed a kept connection shows within a round trip; what breaks later was at work."""
END_S = 0.5
"""So long may the end of an answer take after its last event; then its connection is not kept."""
REQUEST_ID = "X-Request-Id"
UNREACHED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""No connection came about."""
_BROKEN = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError)


@dataclass(frozen=True, slots=True)
class Question:
    """One HTTP request; `follows` redirects or takes them as answers."""

    method: str
    url: str
    timeout: aiohttp.ClientTimeout
    headers: Mapping[str, str]
    content: bytes | None = None
    follows: bool = False

    def again(self) -> "Question":
        """The same once more, under another id: engines refuse or confuse one that they have had."""
        own = self.headers.get(REQUEST_ID)
        return replace(self, headers={**self.headers, REQUEST_ID: f"{own}-again"}) if own else self


class Connections:
    """To one server.

    Args:
        socket: the path of a Unix socket; empty for TCP, where the URLs say where to.
        headers: of each request.
    """

    def __init__(self, socket: str, headers: Mapping[str, str]) -> None:
        self._socket, self._headers = socket, headers
        self._session: aiohttp.ClientSession | None = None
        self._answers: set[aiohttp.ClientResponse] = set()

    @asynccontextmanager
    async def answer(self, question: Question) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Ask, and have the answer's head; leaving by an exception breaks the connection, which aborts what runs.

        Raises:
            EngineDead: the server broke off, and accepts no connection any more.
            aiohttp.ClientError: anything else that went wrong.
        """
        response = await self._asked(question)
        self._answers.add(response)
        try:
            yield response
        except BaseException:
            self._close(response)
            raise
        if response.closed:
            self._answers.discard(response)
        else:
            # Nobody waits for the last bytes: with them aiohttp keeps the connection by itself.
            asyncio.get_running_loop().call_later(END_S, self._close, response)

    async def close(self) -> None:
        """Break all; the next request opens new ones. Whoever still reads gets a `ClientConnectionError`."""
        session, self._session = self._session, None
        for response in list(self._answers):
            # Who waits for more of an answer is not told by the session's end, and would wait for ever.
            self._close(response)
        if session is not None:
            await session.close()

    async def _asked(self, question: Question) -> aiohttp.ClientResponse:
        """Ask over a kept connection; where that breaks at once, as it was closed unseen, once more over a new one."""
        session, way, loop = self._opened(), _Way(), asyncio.get_running_loop()
        asked_s = loop.time()
        try:
            return await _ask(session, question, way)
        except _BROKEN as error:
            broke_late = loop.time() - asked_s > AGAIN_S or _has_begun(error)
            if not way.used or broke_late or session is not self._session:
                raise
        try:
            return await _ask(session, question.again(), _Way(anew=True))
        except UNREACHED as error:
            # The request may be what has ended it: unlike one that never found a server.
            raise EngineDead("the engine broke off, and does not accept connections any more") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = (
                _UnixKeeper(self._socket, limit=0, keepalive_timeout=KEPT_S)
                if self._socket
                else _TcpKeeper(limit=0, keepalive_timeout=KEPT_S)
            )
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, cookie_jar=_NoCookies())
        return self._session

    def _close(self, response: aiohttp.ClientResponse) -> None:
        response.close()
        self._answers.discard(response)


@dataclass(slots=True)
class _Way:
    """The connection that a request takes.

    Attributes:
        anew: it must be a new one.
        used: it has served before.
    """

    anew: bool = False
    used: bool = False


_WAY: ContextVar[_Way] = ContextVar("way")
"""From a request to its connector, in one task: aiohttp hands nothing through."""
_MET: WeakSet[ResponseHandler] = WeakSet()
"""Connections that have served."""


class _Keeper(aiohttp.BaseConnector):
    """Takes no kept connection that its server has closed meanwhile, and none where a new one must be."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """A connection for the request."""
        way = _WAY.get()
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None or protocol not in _MET:
                way.used = False
                if protocol is not None:
                    _MET.add(protocol)
                return connection
            if not way.anew and not _is_over(connection):
                way.used = True
                return connection
            connection.close()


class _TcpKeeper(_Keeper, aiohttp.TCPConnector):
    pass


class _UnixKeeper(_Keeper, aiohttp.UnixConnector):
    pass


class _NoCookies(aiohttp.DummyCookieJar):
    """Looks at no cookie: one tenant's would go out with another's request, and a broken one be quoted in a log."""

    def update_cookies_from_headers(self, headers: Sequence[str], response_url: URL) -> None:
        """Leave them unread."""


async def _ask(session: aiohttp.ClientSession, question: Question, way: _Way) -> aiohttp.ClientResponse:
    _WAY.set(way)
    return await session.request(
        question.method,
        question.url,
        data=question.content,
        headers=question.headers,
        timeout=question.timeout,
        allow_redirects=question.follows,
    )


def _is_over(connection: Connection) -> bool:
    """Whether there is something to read on an idle connection: its end, which the event loop has not seen yet."""
    socket = connection.transport.get_extra_info("socket") if connection.transport else None
    if socket is None or (connection.protocol and connection.protocol.should_close):
        return True
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _has_begun(error: Exception) -> bool:
    """Whether a part of the answer's head came before the connection broke."""
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)
