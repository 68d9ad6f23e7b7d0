"""llama.cpp as a supervised child process: the engine that needs nothing but a wheel and a model file."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from importlib.util import find_spec

from protocol.errors import SetupError
from protocol.wire import JsonObject
from worker.engine.base import Capacity, EngineDead, EngineLoad, EngineRequest, SleepRefused
from worker.engine.child import Child
from worker.engine.literal import as_chat, literal
from worker.engine.model_file import MODEL_NAME, ensure_model
from worker.engine.openai import OpenAIEngine
from worker.engine.openai_http import Upstream
from worker.engine.options import EngineOptions

DEFAULT_SLOTS = 4
DEFAULT_CONTEXT_TOKENS = 2048


class LlamaEngine:
    """Starts llama.cpp's own server beside the worker and talks to it as to any other server."""

    def __init__(self, options: EngineOptions) -> None:
        """Set up without starting anything."""
        self._options = replace(
            options,
            slots=options.slots or DEFAULT_SLOTS,
            context_tokens=options.context_tokens or DEFAULT_CONTEXT_TOKENS,
        )
        self._child: Child | None = None
        self._server: OpenAIEngine | None = None
        self._asks: Upstream | None = None

    async def start(self) -> Capacity:
        """Start the child, again after a death, and wait until its server answers.

        Raises:
            EngineDead: it did not come up.
            SetupError: llama.cpp or the model is not installed.
        """
        await self.close()
        options = self._options
        if find_spec("xllamacpp") is None:
            msg = "llama.cpp is not installed"
            raise SetupError(msg, "Run: pip install 'tokenfleet[up]'")
        # Unpacking takes seconds the first time: not on the event loop.
        model_path = options.model_path or await asyncio.to_thread(ensure_model)
        numbers = (options.port, options.slots, options.context_tokens, options.threads)
        arguments = (str(model_path), options.model or MODEL_NAME, *map(str, numbers))
        self._child = await Child.start("worker.engine.llama_child", arguments)
        address = await self._child.address(options.start_timeout_s)
        self._server, self._asks = OpenAIEngine(replace(options, attach=address)), Upstream(address)
        return await self._server.start()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        """Run one request; see `Engine.generate`."""
        if self._server is None or self._asks is None:
            raise EngineDead("the engine's process is not running", reached=False)
        asked, first = await literal(self._asks, request), True
        async with aclosing(self._server.generate(asked)) as chunks:
            async for chunk in chunks:
                yield chunk if asked.endpoint == request.endpoint else as_chat(chunk, first=first)
                first = False

    async def tokenize(self, request: EngineRequest) -> list[int]:
        """Not told: its chunks are tokens, and counted as they come."""
        del request
        return []

    async def detokenize(self, request: EngineRequest, ids: Sequence[int]) -> str:
        """Not told either."""
        del request, ids
        return ""

    async def load(self) -> EngineLoad:
        """Counted requests, and the child's resident memory."""
        if self._server is None or self._child is None:
            return EngineLoad()
        return replace(await self._server.load(), resident_bytes=self._child.resident_bytes())

    def prefixes(self) -> frozenset[str]:
        """None: llama.cpp does not tell what its cache holds."""
        return frozenset()

    async def sleep(self) -> None:
        """Refuse: llama.cpp gives its memory back only with its process."""
        raise SleepRefused("llama.cpp has no sleep mode; stop the worker instead, it loads within seconds")

    async def wake(self) -> None:
        """Refuse, as `sleep`: it never sleeps."""
        raise SleepRefused("llama.cpp never sleeps")

    async def wait_dead(self) -> str:
        """Return once the child ended, or its server no longer answers."""
        if self._server is None or self._child is None:
            return "the engine's process is not running"
        waits = [asyncio.ensure_future(self._child.wait()), asyncio.ensure_future(self._server.wait_dead())]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            for wait in waits:
                wait.cancel()

    async def close(self) -> None:
        """End the child; idempotent."""
        server, self._server = self._server, None
        asks, self._asks = self._asks, None
        child, self._child = self._child, None
        if server is not None:
            await server.close()
        if asks is not None:
            await asks.close()
        if child is not None:
            await child.close()


def from_options(options: EngineOptions) -> LlamaEngine:
    """Build it from a worker's settings."""
    return LlamaEngine(options)
