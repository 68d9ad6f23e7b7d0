"""One life of an engine, from its being up to its death."""

import asyncio
import math
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from protocol.clock import SystemClock
from protocol.log import get_logger
from protocol.wire import JsonObject
from worker.engine.base import EngineDead, EngineFault, EngineLoad, EngineRefused, EngineRequest
from worker.engine.openai import OpenAIEngine
from worker.engine.openai_http import Upstream
from worker.engine.prefix_index import PrefixIndex
from worker.engine.token_ids import ids_of
from worker.engine.vllm import metrics
from worker.engine.vllm.bodies import BodyLimits, check_body
from worker.engine.vllm.body import engine_body, prompt_chars
from worker.engine.vllm.child import Child
from worker.engine.vllm.facts import Facts
from worker.engine.vllm.kv_events import follow
from worker.engine.vllm.phases import how_it_ended
from worker.engine.vllm.progress import CHECKS, Progress

DYING_S = 1.5
"""After a fault an engine that is dying is dead within so long; its streams end first, and for a moment its health
check still says yes."""
DYING_POLL_S = 0.1
SHORTEST_CHECK_S = 0.05
READ_S = 0.2
"""Its metrics are asked for so often at most: each time costs its server milliseconds."""
TOKENIZED = (
    *("model", "prompt", "messages", "add_special_tokens", "tools", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message"),
)
"""The members of a body that its prompt is made of."""
_log = get_logger("worker")


class Life:
    """An engine that is up: runs requests, tells its load, and watches over it.

    Attributes:
        asks: for questions to its server, over a connection that is kept.
        facts: what it said about itself.
        index: which prefixes it holds.
        progress: our requests on it.
        dead: the reason, once it is.
        hung: whether that is why it is.
    """

    def __init__(self, server: OpenAIEngine, asks: Upstream, facts: Facts, child: Child | None, stall_s: float) -> None:
        """Begin to watch; `child` is None for a server that is not ours."""
        self._server, self._child, self._stall_s = server, child, stall_s
        self.asks, self.facts = asks, facts
        self._limits = BodyLimits(facts.vocabulary, facts.capacity.context_tokens)
        self.index = PrefixIndex(facts.capacity.block_tokens, facts.capacity.kv_tokens)
        self._clock = SystemClock()
        self.progress = Progress(self._clock)
        self._reading: metrics.Reading | None = None
        self._read_at_s = -math.inf
        self.dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.hung = False
        self._tasks = [self._begin(self._watch_health()), self._begin(self._watch_progress())]
        if child is not None:
            self._tasks.append(self._begin(self._watch_child(child)))
        if facts.events:
            self._tasks.append(self._begin(follow(facts.events, self.index)))

    async def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        """Run one request; see `Engine.generate`."""
        check_body(request.endpoint, request.body, self._limits)
        facts = self.facts
        body = engine_body(request, by_priority=facts.by_priority, stream_interval=facts.stream_interval)
        asked = replace(request, body=body)
        usage: JsonObject = {}
        try:
            with self.progress.flight():
                async with aclosing(self._server.generate(asked)) as chunks:
                    async for chunk in chunks:
                        self.progress.moved()
                        usage = chunk.get("usage") or usage
                        yield chunk
        except EngineDead as error:
            if not error.reached:
                raise
            if self.dead.done():
                raise EngineDead(f"{error}; {self.dead.result()}") from error
            # At once: until the watch over its health is sure, jobs would come back here for strike after strike.
            self._die(str(error))
            raise
        except EngineFault as fault:
            # What looks like a fault may be the engine's end: only that is a strike.
            if await self._dies():
                raise EngineDead(f"{fault}; {self.dead.result()}") from fault
            raise
        self._remember(request, usage)

    async def tokenize(self, request: EngineRequest) -> list[int]:
        """The tokens of the prompt; none when its server does not say."""
        body = request.body
        try:
            check_body(request.endpoint, body, self._limits)
        except EngineRefused:
            return []
        asked = {name: body[name] for name in TOKENIZED if body.get(name) is not None}
        _, told = await self.asks.post("/tokenize", asked)
        return ids_of(told.get("tokens"))

    async def detokenize(self, request: EngineRequest, ids: Sequence[int]) -> str:
        """The text of tokens; empty when its server does not say."""
        _, told = await self.asks.post("/detokenize", {"model": request.body.get("model"), "tokens": ids})
        text = told.get("prompt")
        return text if isinstance(text, str) else ""

    async def load(self) -> EngineLoad:
        """What the engine said within the last `READ_S`; zeros when it does not answer."""
        reading = await self._last_reading()
        if reading is None:
            return EngineLoad()
        return EngineLoad(
            running=reading.running,
            waiting=reading.waiting,
            kv_used_tokens=round(reading.kv_share * self.facts.capacity.kv_tokens),
            prompt_tokens=reading.prompt_tokens,
            generated_tokens=reading.generated_tokens,
            prefix_query_tokens=reading.prefix_query_tokens,
            prefix_hit_tokens=reading.prefix_hit_tokens,
            preemptions=reading.preemptions,
            resident_bytes=self._child.resident_bytes() if self._child else 0,
        )

    async def close(self) -> None:
        """Abort what runs, and end the server if it is ours."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._server.close()
        await self.asks.close()
        if self._child is not None:
            await self._child.close()

    def _begin(self, watch: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(watch, name="vllm-watch")

    def _die(self, reason: str) -> None:
        if not self.dead.done():
            self.dead.set_result(reason)

    async def _watch_child(self, child: Child) -> None:
        """Any end that nobody asked for is a death: after a crash of its engine the server exits with code 0."""
        self._die(f"vLLM {how_it_ended(await child.wait())}")

    async def _watch_health(self) -> None:
        self._die(await self._server.wait_dead())

    async def _watch_progress(self) -> None:
        """Notice an engine that hangs while its server still says that it is well."""
        pause_s = max(self._stall_s / CHECKS, SHORTEST_CHECK_S)
        while not self.progress.is_hung(self._stall_s):
            await asyncio.sleep(pause_s)
            if self.progress.flights:
                await self._read()
        self.hung = True
        self._die(f"nothing has moved on it for {self._stall_s:g} s")
        _log.warning("vllm_hung", requests=self.progress.flights, stall_s=self._stall_s)
        if self._child is not None:
            self._child.kill()
        # Ends the streams of a server that is not ours to kill.
        await self._server.close()

    async def _last_reading(self) -> metrics.Reading | None:
        if self.dead.done():
            return None
        if self._clock.monotonic() - self._read_at_s >= READ_S:
            # Before the answer: a server that takes its time is asked no more often.
            self._read_at_s = self._clock.monotonic()
            self._reading = await self._read()
        return self._reading

    async def _read(self) -> metrics.Reading | None:
        asking = asyncio.ensure_future(self.asks.call("GET", metrics.PATH))
        ends: list[asyncio.Future[Any]] = [asking, self.dead]
        try:
            # What has died may never answer, and the worker's report must say at once that it has.
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            status, text = asking.result() if asking.done() else (0, b"")
        finally:
            asking.cancel()
        reading = metrics.read(text) if status == 200 else None
        if reading is not None:
            self.progress.read(reading)
        return reading

    async def _dies(self) -> bool:
        """Whether the engine turns out to be dead within a moment."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + DYING_S
        while not self.dead.done() and loop.time() < until_s:
            if await self.asks.health() != 200:
                self._die("its server is not well any more")
            await asyncio.wait([self.dead], timeout=DYING_POLL_S)
        return self.dead.done()

    def _remember(self, request: EngineRequest, usage: JsonObject) -> None:
        """Tell the index which prompt this was; without events it is only assumed to be in the cache."""
        tokens = usage.get("prompt_tokens")
        if not request.prefix or not isinstance(tokens, int):
            return
        if self.facts.events:
            self.index.prompt(request.request_id, request.prefix, prompt_chars(request.body), tokens)
        elif self.facts.caches_prefixes:
            self.index.assumed(request.prefix, tokens)
