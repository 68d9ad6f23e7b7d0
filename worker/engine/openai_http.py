"""One OpenAI-compatible server over HTTP."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
from yarl import URL

from protocol.errors import SetupError
from protocol.wire import JsonObject, dumps
from worker.engine.base import EngineDead, EngineFault, EngineRequest
from worker.engine.openai_rules import error_of_status, read_embeddings, read_object, upstream_body
from worker.engine.sse import SseError, SseParser

CONNECT_TIMEOUT_S = 5.0
PROBE_TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_STREAM_BYTES = 512 * 1024 * 1024
"""A stream repeats much of what stands once in a whole answer."""
DONE = "[DONE]"
UNIX = "unix://"


class _NoCookies(aiohttp.DummyCookieJar):
    """Looks at no cookie: one tenant's would go out with another's request, and a broken one be quoted in a log."""

    def update_cookies_from_headers(self, headers: Sequence[str], response_url: URL) -> None:
        """Leave them unread."""


class Upstream:
    """Sends requests to one server and reads its answers."""

    def __init__(self, url: str, api_key: str = "", stall_s: float = 120.0, *, keep_alive: bool = False) -> None:
        """Take the server's root, with or without `/v1`; nothing is sent yet.

        Args:
            url: where it listens; `unix:///PATH` for a socket.
            api_key: sent as a bearer token; empty for none.
            stall_s: a stream that is silent for so long is given up; 0 waits for ever.
            keep_alive: send one request after the other over the same connection: for questions, not for work.

        Raises:
            SetupError: the address is no http(s) URL.
        """
        self._socket = url.removeprefix(UNIX) if url.startswith(UNIX) else ""
        url = "http://localhost" if self._socket else url
        self._root = url.rstrip("/").removesuffix("/v1").rstrip("/")
        if not self._root.startswith(("http://", "https://")):
            msg = f"the engine's address {url!r} is no http:// or https:// URL"
            raise SetupError(msg, "Give it as in http://127.0.0.1:8000.")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=stall_s or None)
        self._keep_alive = keep_alive
        self._session: aiohttp.ClientSession | None = None
        self._open: set[aiohttp.ClientResponse] = set()
        self._health_path = "/health"

    async def generate(self, request: EngineRequest) -> AsyncGenerator[str, None]:
        """The data of each event of a stream, up to the one that ends it.

        Raises:
            EngineError: what the answer or the broken connection means; `EngineDead` only when the server
                could not be reached at all.
        """
        parser, received = SseParser(), 0
        async with _translated(), self._post(request) as response:
            if response.content_type != "text/event-stream":
                raise EngineFault("the engine answered something else than a stream")
            async for piece in response.content.iter_any():
                received += len(piece)
                if received > MAX_STREAM_BYTES:
                    raise EngineFault("the engine's answer is too long")
                for data in parser.feed(piece):
                    if data == DONE:
                        return
                    yield data
        raise EngineFault("the engine's stream broke off")

    async def fetch(self, request: EngineRequest) -> JsonObject:
        """The whole answer to a request that does not stream; raises as `generate`."""
        async with _translated(), self._post(request) as response:
            return read_embeddings(await _read(response))

    async def call(
        self, method: str, path: str, timeout_s: float = PROBE_TIMEOUT_S, body: JsonObject | None = None
    ) -> tuple[int, bytes]:
        """Status and content of a question; status 0 when the server did not answer in time."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        data = None if body is None else dumps(body)
        headers = {"Content-Type": "application/json"} if data else None
        try:
            asking = self._opened().request(method, self._root + path, timeout=timeout, data=data, headers=headers)
            async with asking as response:
                return response.status, await _read(response)
        except EngineFault:
            return response.status, b""
        except (aiohttp.ClientError, OSError):
            return 0, b""

    async def get(self, path: str, timeout_s: float = PROBE_TIMEOUT_S) -> tuple[int, JsonObject]:
        """Status and object of a GET; status 0 when the server did not answer, {} when it sent no object."""
        return _as_object(*await self.call("GET", path, timeout_s))

    async def post(self, path: str, body: JsonObject, timeout_s: float = PROBE_TIMEOUT_S) -> tuple[int, JsonObject]:
        """The same of a POST with a body."""
        return _as_object(*await self.call("POST", path, timeout_s, body))

    async def health(self) -> int:
        """Status of the server's own health check; 0 when it does not answer."""
        status, _ = await self.get(self._health_path)
        if status in (404, 405) and self._health_path == "/health":
            self._health_path = "/v1/models"
            return await self.health()
        return status

    async def close(self) -> None:
        """Break all connections; the next request opens new ones. Whoever still reads gets an `EngineFault`."""
        session, self._session = self._session, None
        for response in self._open:
            # Who waits for more of an answer is not told by the session's end, and would wait for ever.
            response.content.set_exception(aiohttp.ServerDisconnectedError())
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def _post(self, request: EngineRequest) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Send the request; leaving the context breaks the connection, which aborts what still runs."""
        headers = {"Content-Type": "application/json", "X-Request-Id": request.request_id}
        if request.trace:
            headers["traceparent"] = request.trace
        posting = self._opened().post(
            self._root + request.endpoint,
            data=dumps(upstream_body(request.endpoint, request.body)),
            headers=headers,
            timeout=self._timeout,
            allow_redirects=False,
        )
        async with posting as response:
            if response.status != 200:
                content = await _read(response)
                raise error_of_status(response.status, content, response.headers, datetime.now(UTC))
            self._open.add(response)
            try:
                yield response
            finally:
                self._open.discard(response)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A connection for each request: a reused one may break at the moment of use, and whether the
            # server has begun by then can't be told. Against a generation its cost is nothing.
            closes = not self._keep_alive
            connector = (
                aiohttp.UnixConnector(self._socket, force_close=closes, limit=0)
                if self._socket
                else aiohttp.TCPConnector(limit=0, force_close=closes)
            )
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, cookie_jar=_NoCookies())
        return self._session


def _as_object(status: int, content: bytes) -> tuple[int, JsonObject]:
    try:
        return status, read_object(content) if content else {}
    except EngineFault:
        return status, {}


@asynccontextmanager
async def _translated() -> AsyncGenerator[None, None]:
    """Turn what the network raises into an engine's errors, whose texts are free of what was sent."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise EngineDead("the engine does not accept connections", reached=False) from error
    except aiohttp.SocketTimeoutError as error:
        raise EngineFault("the engine was silent for too long") from error
    except (aiohttp.ClientError, OSError) as error:
        raise EngineFault(f"the connection to the engine broke ({type(error).__name__})") from error
    except SseError as error:
        raise EngineFault(f"the engine sent garbage: {error}") from error


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > MAX_ANSWER_BYTES:
            raise EngineFault("the engine's answer is too long")
    return bytes(content)
