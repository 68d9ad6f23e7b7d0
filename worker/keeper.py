"""Keeps the engine running: starts it, notices its death and starts it again."""

import asyncio
from collections.abc import Callable
from typing import Literal

from protocol.errors import SetupError
from protocol.log import get_logger
from worker.backoff import Backoff
from worker.engine.base import Capacity, Engine, EngineDead

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
Phase = Literal["loading", "up", "asleep", "down"]
_log = get_logger("worker")


class EngineKeeper:
    """Watches one engine.

    Attributes:
        capacity: what the engine could hold when it last came up; nothing before that.
        phase: what can be asked of it now.
        loaded: set once it came up for the first time.
        restarts: how often it came up again.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.capacity = Capacity(slots=0)
        self.phase: Phase = "loading"
        self.loaded = asyncio.Event()
        self.restarts = 0
        self._on_change: Callable[[], None] = _nobody
        self._on_gone: Callable[[], None] = _nobody

    def tell(self, on_change: Callable[[], None], on_gone: Callable[[], None]) -> None:
        """Name who is told: `on_change` of each phase, `on_gone` when nothing on the old engine can go on."""
        self._on_change, self._on_gone = on_change, on_gone

    async def run(self) -> None:
        """Start it and watch until cancelled.

        Raises:
            SetupError: it does not come up the first time, or what it needs is no longer there.
        """
        await self._start()
        while True:
            reason = await self._engine.wait_dead()
            self._become("down")
            _log.warning("engine_dead", reason=reason)
            await self._restart()

    async def sleep(self) -> None:
        """Have it give its memory back; nothing may run.

        Raises:
            SleepRefused, EngineDead: as `Engine.sleep`.
        """
        await self._engine.sleep()
        self._become("asleep")

    async def wake(self) -> None:
        """Have it take requests again; raises as `sleep`."""
        await self._engine.wake()
        self._become("up")

    async def _start(self) -> None:
        _log.info("engine_starting")
        try:
            self._came_up(await self._engine.start())
        except EngineDead as error:
            raise SetupError(f"the engine did not start: {error}", "See its own log; is its address right?") from error

    async def _restart(self) -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            # Time for the attempts to hear of it from the engine itself, which knows what had reached it.
            await asyncio.sleep(backoff.pause_s())
            self._on_gone()
            try:
                self._came_up(await self._engine.start())
            except EngineDead as error:
                _log.error("engine_not_started", reason=str(error))
            else:
                self.restarts += 1
                return

    def _came_up(self, capacity: Capacity) -> None:
        self.capacity = capacity
        _log.info("engine_ready", slots=capacity.slots, context_tokens=capacity.context_tokens)
        self.loaded.set()
        self._become("up")

    def _become(self, phase: Phase) -> None:
        self.phase = phase
        self._on_change()


def _nobody() -> None:
    """Before anyone asked."""
