"""Says once that Redis is away, once that it stays away, and once that it is back, however many loops notice."""

import time

from structlog.typing import FilteringBoundLogger

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
LONG_S = 30.0
"""A restart or a failover takes less: when Redis is away for longer, somebody must look."""


class Outage:
    """Shared by all that one process does on one Redis."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log, self._away, self._told, self._away_s = log, False, False, 0.0

    def began(self, why: Exception) -> None:
        """A call found Redis away."""
        if not self._away:
            self._log.warning("redis_away", why=str(why))
            self._away_s, self._told = time.monotonic(), False
        elif not self._told and time.monotonic() - self._away_s > LONG_S:
            self._log.error("redis_still_away", why=str(why), for_s=round(time.monotonic() - self._away_s))
            self._told = True
        self._away = True

    def over(self) -> None:
        """A call was answered."""
        if self._away:
            self._log.info("redis_back", after_s=round(time.monotonic() - self._away_s, 1))
        self._away = False


class Backoff:
    """Pauses that double from `FIRST_PAUSE_S` to `LONGEST_PAUSE_S`, until something succeeds."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def pause_s(self) -> float:
        """How long to pause after one more failure."""
        now, self._next_s = self._next_s, min(2 * self._next_s, LONGEST_PAUSE_S)
        return now

    def reset(self) -> None:
        """It succeeded."""
        self._next_s = FIRST_PAUSE_S
