"""vLLM: its own server, as a supervised child or one that runs already, and what it knows of itself."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from protocol.errors import SetupError
from protocol.states import Priority
from protocol.wire import JsonObject
from worker.engine.base import Capacity, EngineDead, EngineError, EngineLoad, EngineRequest, SleepRefused
from worker.engine.openai import OpenAIEngine
from worker.engine.openai_http import Upstream
from worker.engine.options import EngineOptions
from worker.engine.vllm import metrics
from worker.engine.vllm.child import Child
from worker.engine.vllm.facts import INFO_PATH, Facts, facts_of
from worker.engine.vllm.flags import command
from worker.engine.vllm.launch import launch
from worker.engine.vllm.life import Life

INFO_TIMEOUT_S = 60.0
"""At its first question about itself the server looks at the whole machine, which takes seconds."""
SLEEP_TIMEOUT_S = 120.0
NOT_RUNNING = "vLLM is not running"


class VllmEngine:
    """One vLLM, with whatever devices its flags give it."""

    def __init__(self, options: EngineOptions) -> None:
        """Set up without starting anything.

        Raises:
            SetupError: the address is no URL, or a flag can't be given to vLLM.
        """
        if options.attach and options.arguments:
            raise SetupError(
                "flags after `--` are for a vLLM that the worker starts, not for one that runs",
                "Leave out --attach, or give the flags to that vLLM.",
            )
        # Both show now what could not work later.
        if options.attach:
            Upstream(options.attach)
        else:
            command(options, "python", "", "")
        self._options = options
        self._life: Life | None = None
        self._ran = self._hung = False

    async def start(self) -> Capacity:
        """Bring it up, again after a death; see `Engine.start`."""
        self._hung = self._hung or (self._life is not None and self._life.hung)
        await self.close()
        self._life = await self._begin()
        self._ran, self._hung = True, False
        return self._life.facts.capacity

    def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        """Run one request; see `Engine.generate`."""
        return self._living().generate(request)

    async def tokenize(self, request: EngineRequest) -> list[int]:
        """By its own tokenizer; see `Engine.tokenize`."""
        return await self._life.tokenize(request) if self._life else []

    async def detokenize(self, request: EngineRequest, ids: Sequence[int]) -> str:
        """By its own tokenizer; see `Engine.detokenize`."""
        return await self._life.detokenize(request, ids) if self._life else ""

    async def load(self) -> EngineLoad:
        """Its own figures; see `Engine.load`."""
        return await self._life.load() if self._life else EngineLoad()

    def prefixes(self) -> frozenset[str]:
        """By its KV events; where those are off, the prompts that fit into the cache last."""
        return self._life.index.hashes() if self._life else frozenset()

    async def sleep(self) -> None:
        """Move the weights to host memory and drop the KV cache; see `Engine.sleep`."""
        life = self._living()
        # On the CPU vLLM answers 200, does nothing, and later requests hang: it must not be asked.
        if life.facts.sleepless:
            raise SleepRefused(f"this vLLM can't sleep: {life.facts.sleepless}")
        if life.progress.flights:
            raise SleepRefused("requests are running")
        await self._order(life, "/sleep?level=1")
        life.index.cleared()

    async def wake(self) -> None:
        """Bring the weights back; see `Engine.wake`."""
        life = self._living()
        if life.facts.sleepless:
            raise SleepRefused(f"this vLLM never sleeps: {life.facts.sleepless}")
        await self._order(life, "/wake_up")

    async def wait_dead(self) -> str:
        """Return once its process ended, its server no longer answers, or nothing moves on it."""
        return await asyncio.shield(self._life.dead) if self._life else NOT_RUNNING

    async def close(self) -> None:
        """End it, or leave a server that is not ours; idempotent."""
        life, self._life = self._life, None
        if life is not None:
            await life.close()

    async def _begin(self) -> Life:
        if self._options.attach:
            return await self._join(self._options.attach, self._options.api_key, None)
        launched = await launch(self._options, again=self._ran)
        return await self._join(launched.url, launched.api_key, launched.child)

    def _living(self) -> Life:
        if self._life is None:
            raise EngineDead(NOT_RUNNING, reached=False)
        return self._life

    async def _order(self, life: Life, path: str) -> None:
        status, _ = await life.asks.call("POST", path, SLEEP_TIMEOUT_S)
        if status == 0:
            raise EngineDead(f"vLLM did not answer to {path}", reached=False)
        if status != 200:
            raise SleepRefused(f"vLLM answered {status} to {path}")

    async def _join(self, url: str, api_key: str, child: Child | None) -> Life:
        """Meet a server that is up, or is coming up elsewhere, and ask what it is."""
        # A request may wait in the engine's queue for long: the watch over its progress decides, not the silence.
        server = OpenAIEngine(replace(self._options, attach=url, api_key=api_key, stall_s=0.0))
        asks = Upstream(url, api_key)
        try:
            await server.start()
            facts = await self._ask(asks)
            if self._hung and child is None:
                await self._prove(server, facts)
            return Life(server, asks, facts, child, self._options.stall_s)
        except BaseException:
            await server.close()
            await asks.close()
            if child is not None:
                await child.close()
            raise

    async def _ask(self, asks: Upstream) -> Facts:
        status, models = await asks.get("/v1/models")
        _, info = await asks.get(INFO_PATH, INFO_TIMEOUT_S)
        _, text = await asks.call("GET", metrics.ALL_PATH)
        if status != 200:
            raise EngineDead(f"vLLM answered {status} to /v1/models", reached=False)
        return facts_of(self._options, models, info, list(metrics.caches(text)))

    async def _prove(self, server: OpenAIEngine, facts: Facts) -> None:
        """One token from a server that hung before: else each new job would be hung with it, at a strike each."""
        body = {"model": facts.capacity.models[0], "prompt": "1", "max_tokens": 1}
        request = EngineRequest(f"proof-{secrets.token_hex(8)}", "/v1/completions", body, Priority.HIGH, 1)
        try:
            async with asyncio.timeout(self._options.stall_s), aclosing(server.generate(request)) as chunks:
                await anext(chunks)
        except (TimeoutError, EngineDead) as error:
            raise EngineDead("the engine still hangs", reached=False) from error
        except EngineError:
            # It answers, if only that it does not generate: embeddings.
            return


def from_options(options: EngineOptions) -> VllmEngine:
    """Build it from a worker's settings.

    Raises:
        SetupError: the address is no URL, or a flag can't be given to vLLM.
    """
    return VllmEngine(options)
