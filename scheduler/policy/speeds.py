"""How fast each worker is, learned from the first tokens that it brought beside those predicted."""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from protocol.messages import LoadReport

GAIN = 0.1
"""The exponent with which one observation moves a worker's speed."""
MOST_OTHERS = 0.2
"""Only first tokens that waited less than this share of their time for other prompts tell about the engine itself."""
RATIO = 4.0
"""One observation counts as so many times off at most."""
AWAITED = 1024
"""First tokens that are waited for; those of jobs that never brought one are forgotten in order."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    worker: str
    predicted_ms: float


class Speeds:
    """Learns; a worker that nothing is known of has speed 1."""

    def __init__(self) -> None:
        self._speeds: dict[str, float] = {}
        self._awaited: OrderedDict[int, _Awaited] = OrderedDict()

    def of(self, worker: str) -> float:
        """How long the worker's engine takes, over the reference engine."""
        return self._speeds.get(worker, 1.0)

    def assigned(self, worker: str, attempt: int, predicted_ms: float, pending_ms: float) -> None:
        """An attempt went out; `pending_ms` of the prediction are prompts of others."""
        if pending_ms > MOST_OTHERS * predicted_ms or predicted_ms <= 0:
            return
        self._awaited[attempt] = _Awaited(worker, predicted_ms)
        if len(self._awaited) > AWAITED:
            self._awaited.popitem(last=False)

    def reported(self, worker: str, report: LoadReport) -> None:
        """Take in the first tokens of a report: `speed · (observed / predicted)^GAIN`."""
        for attempt, observed_ms in report.firsts:
            awaited = self._awaited.pop(attempt, None)
            if awaited and awaited.worker == worker:
                ratio = min(max(observed_ms / awaited.predicted_ms, 1 / RATIO), RATIO)
                self._speeds[worker] = self.of(worker) * ratio**GAIN

    def keep(self, workers: Collection[str]) -> None:
        """Forget all other workers."""
        self._speeds = {worker: speed for worker, speed in self._speeds.items() if worker in workers}
