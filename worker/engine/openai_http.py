"""One OpenAI-compatible server over HTTP."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp

from protocol.errors import SetupError
from protocol.wire import JsonObject, dumps
from worker.engine.base import EngineDead, EngineFault, EngineRequest
from worker.engine.openai_rules import error_of_status, read_object, upstream_body
from worker.engine.sse import SseError, SseParser

CONNECT_TIMEOUT_S = 5.0
PROBE_TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
DONE = "[DONE]"


class Upstream:
    """Sends requests to one server and reads its answers."""

    def __init__(self, url: str, api_key: str = "", stall_s: float = 120.0) -> None:
        """Take the server's root, with or without `/v1`; nothing is sent yet.

        Raises:
            SetupError: the address is no http(s) URL.
        """
        self._root = url.rstrip("/").removesuffix("/v1").rstrip("/")
        if not self._root.startswith(("http://", "https://")):
            msg = f"the engine's address {url!r} is no http:// or https:// URL"
            raise SetupError(msg, "Give it as in http://127.0.0.1:8000.")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=stall_s)
        self._session: aiohttp.ClientSession | None = None
        self._health_path = "/health"

    async def generate(self, request: EngineRequest) -> AsyncGenerator[str, None]:
        """The data of each event of a stream, up to the one that ends it.

        Raises:
            EngineError: what the answer or the broken connection means; `EngineDead` only when the server
                could not be reached at all.
        """
        parser = SseParser()
        async with _translated(), self._post(request) as response:
            if response.content_type != "text/event-stream":
                raise EngineFault("the engine answered something else than a stream")
            async for piece in response.content.iter_any():
                for data in parser.feed(piece):
                    if data == DONE:
                        return
                    yield data
        raise EngineFault("the engine's stream broke off")

    async def fetch(self, request: EngineRequest) -> JsonObject:
        """The whole answer to a request that does not stream; raises as `generate`."""
        async with _translated(), self._post(request) as response:
            return read_object(await _read(response))

    async def get(self, path: str) -> tuple[int, JsonObject]:
        """Status and object of a GET; status 0 when the server did not answer, {} when it sent no object."""
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        try:
            async with self._opened().get(self._root + path, timeout=timeout) as response:
                content = await _read(response)
                return response.status, read_object(content) if content else {}
        except EngineFault:
            return response.status, {}
        except (aiohttp.ClientError, OSError):
            return 0, {}

    async def health(self) -> int:
        """Status of the server's own health check; 0 when it does not answer."""
        status, _ = await self.get(self._health_path)
        if status in (404, 405) and self._health_path == "/health":
            self._health_path = "/v1/models"
            return await self.health()
        return status

    async def close(self) -> None:
        """Break all connections; the next request opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def _post(self, request: EngineRequest) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Send the request; leaving the context breaks the connection, which aborts what still runs."""
        posting = self._opened().post(
            self._root + request.endpoint,
            data=dumps(upstream_body(request.endpoint, request.body)),
            headers={"Content-Type": "application/json", "X-Request-Id": request.request_id},
            timeout=self._timeout,
            allow_redirects=False,
        )
        async with posting as response:
            if response.status != 200:
                content = await _read(response)
                raise error_of_status(response.status, content, response.headers, datetime.now(UTC))
            yield response

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A connection for each request: a reused one may break at the moment of use, and whether the
            # server has begun by then can't be told. Against a generation its cost is nothing.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self._session


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
