"""Whether an engine gets on, whatever its `/health` says."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from protocol.clock import Clock
from worker.engine.vllm.metrics import Reading

CHECKS = 10
"""So many looks at the engine within the time after which it counts as hung."""


def is_hung(now_s: float, moved_s: float, flights: int, stall_s: float) -> bool:
    """Whether requests are there and nothing has moved for too long; `stall_s` 0 waits for ever."""
    return bool(flights and stall_s) and now_s - moved_s >= stall_s


@dataclass(frozen=True, slots=True)
class _Counters:
    """What moves while an engine works, even where no stream says anything: a long prompt, a queue of others."""

    prompt_tokens: int
    generated_tokens: int
    kv_share: float
    preemptions: int


class Progress:
    """Our requests on the engine, and when it was last seen to get on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moved_s = clock.monotonic()
        self._counters: _Counters | None = None
        self.flights = 0

    @contextmanager
    def flight(self) -> Generator[None]:
        """A request is on the engine; the first one on an idle engine starts the clock."""
        if not self.flights:
            self.moved()
        self.flights += 1
        try:
            yield
        finally:
            self.flights -= 1

    def moved(self) -> None:
        """It said something."""
        self._moved_s = self._clock.monotonic()

    def read(self, reading: Reading) -> None:
        """Its counters, which may have moved."""
        counters = _Counters(reading.prompt_tokens, reading.generated_tokens, reading.kv_share, reading.preemptions)
        if counters != self._counters:
            self._counters = counters
            self.moved()

    def is_hung(self, stall_s: float) -> bool:
        """See `is_hung`."""
        return is_hung(self._clock.monotonic(), self._moved_s, self.flights, stall_s)
