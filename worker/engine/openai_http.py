"""One OpenAI-compatible server over HTTP."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp

from protocol.errors import SetupError
from protocol.turns import Turns
from protocol.wire import JsonObject, dumps
from worker.engine.base import EngineDead, EngineFault, EngineRequest
from worker.engine.connections import REQUEST_ID, UNREACHED, Connections, Question
from worker.engine.openai_rules import error_of_status, read_embeddings, read_object, retry_after_s, upstream_body
from worker.engine.sse import SseError, SseParser

CONNECT_TIMEOUT_S = 5.0
PROBE_TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_STREAM_BYTES = 512 * 1024 * 1024
"""A stream repeats much of what stands once in a whole answer."""
FIRST_PIECES = 2
"""Of a stream: a chat begins with its role, then comes its first token, or both come together."""
DONE = b"[DONE]"
UNIX = "unix://"


class Upstream:
    """Sends requests to one server and reads its answers."""

    def __init__(self, url: str, api_key: str = "", stall_s: float = 120.0) -> None:
        """Take the server's root, with or without `/v1`; nothing is sent yet.

        Args:
            url: where it listens; `unix:///PATH` for a socket.
            api_key: sent as a bearer token; empty for none.
            stall_s: a stream that is silent for so long is given up; 0 waits for ever.

        Raises:
            SetupError: the address is no http(s) URL.
        """
        socket = url.removeprefix(UNIX) if url.startswith(UNIX) else ""
        url = "http://localhost" if socket else url
        self._root = url.rstrip("/").removesuffix("/v1").rstrip("/")
        if not self._root.startswith(("http://", "https://")):
            msg = f"the engine's address {url!r} is no http:// or https:// URL"
            raise SetupError(msg, "Give it as in http://127.0.0.1:8000.")
        self._connections = Connections(socket, {"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=stall_s or None)
        self._health_path = "/health"
        self._turns = Turns()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[bytes, None]:
        """The data of each event of a stream, up to the one that ends it.

        Raises:
            EngineError: what the answer or the broken connection means; `EngineDead` only when the server
                could not be reached at all.
        """
        parser, received, pieces = SseParser(), 0, 0
        async with _translated(), self._post(request) as response:
            if response.content_type != "text/event-stream":
                raise EngineFault("the engine answered something else than a stream")
            while piece := await response.content.readany():
                received, pieces = received + len(piece), pieces + 1
                if received > MAX_STREAM_BYTES:
                    raise EngineFault("the engine's answer is too long")
                if pieces > FIRST_PIECES:
                    await self._turns.wait()
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
        headers = {"Content-Type": "application/json"} if data else {}
        question = Question(method, self._root + path, timeout, headers, data, follows=True)
        status = 0
        try:
            async with self._connections.answer(question) as response:
                status = response.status
                return status, await _read(response)
        except EngineFault:
            return status, b""
        except (EngineDead, aiohttp.ClientError, OSError):
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
        await self._connections.close()

    @asynccontextmanager
    async def _post(self, request: EngineRequest) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Send the request; leaving the context by an exception breaks the connection, which aborts what still runs."""
        headers = {"Content-Type": "application/json", REQUEST_ID: request.request_id}
        if request.trace:
            headers["traceparent"] = request.trace
        content = dumps(upstream_body(request.endpoint, request.body))
        question = Question("POST", self._root + request.endpoint, self._timeout, headers, content)
        async with self._connections.answer(question) as response:
            if response.status != 200:
                content = await _read(response)
                wait_s = retry_after_s(response.headers.get("Retry-After", ""), datetime.now(UTC))
                raise error_of_status(response.status, content, wait_s)
            yield response


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
    except UNREACHED as error:
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
