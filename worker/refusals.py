"""An engine that answers 429 or 503: its worker pauses, then has one request ask whether it takes any again."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable

from protocol.clock import Clock
from protocol.log import get_logger
from worker.backoff import chance

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
TAKEN_S = 1.0
"""Engines refuse at once: what was not refused for so long was taken, though the answer may take its time."""
JOBS_KEPT = 4_096
_log = get_logger("worker")


class Refusals:
    """Episodes: each lasts from a refusal to the first answer after its pause, and its pauses double.

    What had begun before the end of a pause says nothing new: many that are refused at once are one step, and a stream
    that goes on is no answer. A job that is refused again and again waits by itself for twice as long each time: it may
    be the only one that the engine does not take, and must not be the one that asks each time.

    Args:
        clock: of the attempts' beginnings too.
        on_change: told when an episode begins, goes on or ends.
    """

    def __init__(self, clock: Clock, on_change: Callable[[], None]) -> None:
        self._clock, self._on_change = clock, on_change
        self._pause_s, self._spread, self._until_s = 0.0, 1.0, -math.inf
        self._jobs: OrderedDict[str, float] = OrderedDict()

    @property
    def last(self) -> bool:
        """Whether the engine refuses, as far as is known."""
        return self._pause_s > 0

    def refused(self, job: str, begun_s: float, retry_after_s: float) -> float:
        """It refused an attempt of the job, which began then; for how many seconds the job is to wait, at least.

        The worker pauses for up to half as long again as it must, so that many workers don't ask at once.
        """
        asks = begun_s >= self._until_s
        if asks:
            self._pause_s = min(2 * self._pause_s or FIRST_PAUSE_S, LONGEST_PAUSE_S)
            self._spread = 1 + chance() / 2
        pause_s = max(self._pause_s if asks else 0.0, min(retry_after_s, LONGEST_PAUSE_S)) * self._spread
        self._until_s = max(self._until_s, self._clock.monotonic() + pause_s)
        if asks:
            _log.warning("engine_refuses", pause_s=round(pause_s, 3))
            self._on_change()
        wait_s = self._jobs[job] = min(2 * self._jobs.pop(job, 0.0) or FIRST_PAUSE_S, LONGEST_PAUSE_S)
        if len(self._jobs) > JOBS_KEPT:
            self._jobs.popitem(last=False)
        return max(wait_s, retry_after_s)

    def answered(self, job: str, begun_s: float) -> None:
        """It took an attempt of the job, which began then."""
        if self._jobs:
            self._jobs.pop(job, None)
        if self._pause_s and begun_s >= self._until_s:
            self._pause_s, self._until_s = 0.0, -math.inf
            _log.info("engine_takes_requests")
            self._on_change()

    def slots(self, slots: int, begun_s: Iterable[float]) -> int:
        """How many jobs the worker takes: in an episode none, and after each pause one more than it holds.

        Args:
            slots: how many its engine can hold.
            begun_s: when those that it holds began.
        """
        if not self.last:
            return slots
        held, now_s = list(begun_s), self._clock.monotonic()
        asking = any(at_s >= self._until_s and now_s - at_s < TAKEN_S for at_s in held)
        return 0 if asking or now_s < self._until_s else min(slots, len(held) + 1)
