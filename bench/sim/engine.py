"""An engine that says who speaks: each word names process, attempt and flight, so no two attempts' texts are alike."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from random import Random

from protocol.wire import JsonObject
from worker.engine.base import Capacity, EngineBusy, EngineDead, EngineFault, EngineLoad, EngineRequest

POISON, DEADLY, FLAKY, SLOW = "poison", "deadly", "flaky", "slow"
"""Words of a prompt: it ends the engine; it ends the whole process; the engine fails it now and then; it takes long."""
PAUSES_S = (0.01, 0.03, 0.1, 0.3)
SLOW_PAUSES_S = (0.1, 0.5, 1.0)
MOST_WORDS = 6


class SimEngine:
    """Speaks for a few hundred milliseconds.

    Args:
        name: of its process.
        chance: for lengths and pauses.
        slots: requests at once.
        kill: ends the process.
    """

    def __init__(self, name: str, chance: Random, slots: int, kill: Callable[[], None]) -> None:
        self._name, self._chance, self._slots, self._kill = name, chance, slots, kill
        self._running = self._flights = 0
        self._down: asyncio.Event | None = None

    async def start(self) -> Capacity:
        """Up at once, or after a restart's second."""
        await asyncio.sleep(0.01 if self._down is None else 0.5)
        self._down = asyncio.Event()
        return Capacity(self._slots, context_tokens=4_096, kv_tokens=100_000)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        """A few words."""
        down, prompt = self._down, str(request.body["prompt"])
        if down is None or down.is_set():
            raise EngineDead("the engine is down", reached=False)
        self._flights += 1
        said_by = f"{self._name}/{request.request_id.rpartition('-')[2]}/{self._flights}"
        words = min(self._chance.randint(1, MOST_WORDS), request.body["max_tokens"])
        self._running += 1
        try:
            for number in range(words):
                await self._breathe(down, SLOW_PAUSES_S if SLOW in prompt else PAUSES_S)
                yield _chunk(f"{said_by}.{number} ")
                self._misbehave(prompt, down)
            yield {**_chunk(""), "usage": {"prompt_tokens": 5, "completion_tokens": words}}
        finally:
            self._running -= 1

    async def _breathe(self, down: asyncio.Event, pauses_s: Sequence[float]) -> None:
        try:
            async with asyncio.timeout(self._chance.choice(pauses_s)):
                await down.wait()
        except TimeoutError:
            return
        raise EngineDead("the engine died")

    def _misbehave(self, prompt: str, down: asyncio.Event) -> None:
        if POISON in prompt:
            down.set()
            raise EngineDead("the engine died")
        if DEADLY in prompt:
            self._kill()
        if FLAKY in prompt and self._chance.random() < 0.1:
            raise self._chance.choice((EngineBusy(0.2), EngineFault("it broke off")))

    async def tokenize(self, request: EngineRequest) -> list[int]:
        """It does not tell: jobs go on by their text, one token a word."""
        del request
        return []

    async def detokenize(self, request: EngineRequest, ids: Sequence[int]) -> str:
        """It does not tell."""
        del request, ids
        return ""

    async def load(self) -> EngineLoad:
        """What it does at the moment."""
        return EngineLoad(running=self._running)

    def prefixes(self) -> frozenset[str]:
        """It keeps none."""
        return frozenset()

    async def sleep(self) -> None:
        """Nothing to give back."""

    async def wake(self) -> None:
        """It never sleeps."""

    async def wait_dead(self) -> str:
        """Until a prompt has ended it."""
        if self._down is not None:
            await self._down.wait()
        return "a prompt ended it"

    async def close(self) -> None:
        """Nothing to stop."""


def _chunk(text: str) -> JsonObject:
    return {"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": text}]}
