"""Any OpenAI-compatible server that is already running: vLLM, SGLang, TGI, llama.cpp and others."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

from protocol.errors import SetupError
from protocol.wire import JsonObject
from worker.engine.base import Capacity, EngineDead, EngineFault, EngineLoad, EngineRequest, SleepRefused
from worker.engine.openai_http import Upstream
from worker.engine.openai_rules import capacity_of, check_biases, read_chunk, speaks, usage_chunk, vocabulary_of
from worker.engine.options import EngineOptions
from worker.engine.tally import Flight, Tally

START_POLL_S = 0.1
HEALTH_EVERY_S = 1.0
SUSPICIOUS_EVERY_S = 0.1
FAILURES_IN_A_ROW = 3


class OpenAIEngine:
    """A server by URL; it is neither started nor stopped."""

    def __init__(self, options: EngineOptions) -> None:
        """Set up without connecting.

        Raises:
            SetupError: `options.attach` is no http(s) URL.
        """
        self._options = options
        self._upstream = Upstream(options.attach, options.api_key, options.stall_s)
        self._capacity = Capacity(slots=options.slots)
        self._vocabulary = 0
        self._tally = Tally()
        self._suspicious = asyncio.Event()

    async def start(self) -> Capacity:
        """Wait until the server answers, and ask what it can hold.

        Raises:
            EngineDead: it did not answer in time.
            SetupError: it refuses the API key.
        """
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._options.start_timeout_s
        while not _is_well(status := await self._upstream.health()):
            _check_key(status)
            if loop.time() > give_up_s:
                raise EngineDead(f"the engine did not come up in {self._options.start_timeout_s:g} s")
            await asyncio.sleep(START_POLL_S)
        self._suspicious.clear()
        status, models = await self._upstream.get("/v1/models")
        _check_key(status)
        _, props = await self._upstream.get("/props")
        self._capacity = capacity_of(self._options, models, props)
        self._vocabulary = vocabulary_of(models)
        return self._capacity

    async def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        """Run one request; see `Engine.generate`. The last chunk's usage is made when the server sent none."""
        check_biases(request.body, self._vocabulary)
        async with self._flight(request.prompt_tokens) as flight:
            if request.endpoint == "/v1/embeddings":
                yield await self._upstream.fetch(request)
                return
            chunk: JsonObject = {}
            known: JsonObject | None = None
            async with aclosing(self._upstream.generate(request)) as events:
                async for data in events:
                    chunk = read_chunk(data)
                    known = chunk.get("usage") or known
                    flight.generated_tokens += speaks(chunk)
                    yield chunk
            if not chunk.get("usage"):
                yield usage_chunk(chunk, known, request.prompt_tokens, flight.generated_tokens)

    @asynccontextmanager
    async def _flight(self, prompt_tokens: int) -> AsyncGenerator[Flight, None]:
        """Counts a request, and looks after the server when it fails."""
        flight = self._tally.open(prompt_tokens)
        try:
            yield flight
        except EngineDead:
            self._suspicious.set()
            raise
        except EngineFault as fault:
            # What looks like a fault may be the server's end: only that is a strike.
            if _is_well(await self._upstream.health()):
                raise
            self._suspicious.set()
            raise EngineDead(f"{fault}, and it does not answer any more") from fault
        finally:
            self._tally.close(flight)

    async def tokenize(self, request: EngineRequest) -> list[int]:
        """Not told: the OpenAI interface has no way to ask."""
        del request
        return []

    async def detokenize(self, request: EngineRequest, ids: Sequence[int]) -> str:
        """Not told either."""
        del request, ids
        return ""

    async def load(self) -> EngineLoad:
        """Counted from the requests of this client: another client's are not seen."""
        return self._tally.load(self._capacity.slots)

    def prefixes(self) -> frozenset[str]:
        """None: such a server does not tell what its cache holds."""
        return frozenset()

    async def sleep(self) -> None:
        """Refuse: the OpenAI interface knows no sleep."""
        raise SleepRefused("a server behind the OpenAI interface can't be put to sleep; the engine vllm can")

    async def wake(self) -> None:
        """Refuse, as `sleep`: it never sleeps."""
        raise SleepRefused("a server behind the OpenAI interface never sleeps")

    async def wait_dead(self) -> str:
        """Return once three health checks in a row failed; they come faster when requests do not get through."""
        failures = 0
        while failures < FAILURES_IN_A_ROW:
            # No `wait_for`: before Python 3.12 it can swallow a cancellation.
            with suppress(TimeoutError):
                async with asyncio.timeout(SUSPICIOUS_EVERY_S if failures else HEALTH_EVERY_S):
                    await self._suspicious.wait()
                self._suspicious.clear()
            failures = 0 if _is_well(await self._upstream.health()) else failures + 1
        return f"{FAILURES_IN_A_ROW} health checks in a row failed"

    async def close(self) -> None:
        """Break all connections, which aborts what runs."""
        await self._upstream.close()


def _is_well(status: int) -> bool:
    return 200 <= status < 300


def _check_key(status: int) -> None:
    if status in (401, 403):
        msg = "the engine refuses the API key"
        raise SetupError(msg, "Check the engine's key in the settings.")


def from_options(options: EngineOptions) -> OpenAIEngine:
    """Build it from a worker's settings.

    Raises:
        SetupError: `options.attach` is no http(s) URL.
    """
    return OpenAIEngine(options)
