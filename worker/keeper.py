"""Keeps the engine running: notices its death and starts it again."""

import asyncio
from collections.abc import Callable

from protocol.log import get_logger
from worker.backoff import Backoff
from worker.engine.base import Capacity, Engine, EngineDead

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
_log = get_logger("worker")


class EngineKeeper:
    """Watches one engine.

    Attributes:
        capacity: what the engine could hold when it last came up.
        healthy: whether it runs.
    """

    def __init__(self, engine: Engine, capacity: Capacity) -> None:
        self._engine, self.capacity = engine, capacity
        self.healthy = True
        self._on_change: Callable[[], None] = _nobody
        self._on_gone: Callable[[], None] = _nobody

    def tell(self, on_change: Callable[[], None], on_gone: Callable[[], None]) -> None:
        """Name who is told: `on_change` when `healthy` changes, `on_gone` when nothing on the old engine can go on."""
        self._on_change, self._on_gone = on_change, on_gone

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            SetupError: what the engine needs is no longer there.
        """
        while True:
            reason = await self._engine.wait_dead()
            self._become(healthy=False)
            _log.error("engine_dead", reason=reason)
            await self._restart()
            self._become(healthy=True)
            _log.info("engine_ready")

    async def _restart(self) -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            # Time for the attempts to hear of it from the engine itself, which knows what had reached it.
            await asyncio.sleep(backoff.pause_s())
            self._on_gone()
            try:
                self.capacity = await self._engine.start()
            except EngineDead as error:
                _log.error("engine_not_started", reason=str(error))
            else:
                return

    def _become(self, *, healthy: bool) -> None:
        self.healthy = healthy
        self._on_change()


def _nobody() -> None:
    """Before anyone asked."""
