"""How fast each worker is, learned from the first tokens that it brought beside those predicted."""

import math
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from protocol.messages import LoadReport

STEP = 0.05
QUANTILE = 0.25
"""A worker's speed follows the lower quartile of what was observed over what was predicted for the reference engine:
waiting only ever adds to a first token, so its low values tell of the engine and its high ones of the traffic."""
MOST_OTHERS = 0.2
"""Only first tokens that waited less than this share of their time for other prompts tell about the engine itself."""
SURE = 1.4
"""A speed nearer to 1 than this factor is taken for noise: else equal engines would be treated unequally."""
FASTEST, SLOWEST = 1 / 64, 64.0
"""No engine is taken to be further from the reference: one that answers at once has no lower quartile but 0."""
AWAITED = 1024
"""First tokens that are waited for; those of jobs that never brought one are forgotten in order."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    worker: str
    reference_ms: float
    """Predicted for the reference engine."""


class Speeds:
    """Learns; a worker that nothing is known of has speed 1."""

    def __init__(self) -> None:
        self._speeds: dict[str, float] = {}
        self._awaited: OrderedDict[int, _Awaited] = OrderedDict()

    def of(self, worker: str) -> float:
        """How long the worker's engine takes, over the reference engine; 1 unless it is clearly another."""
        speed = self._speeds.get(worker, 1.0)
        return 1.0 if 1 / SURE < speed < SURE else speed

    def assigned(self, worker: str, attempt: int, predicted_ms: float, pending_ms: float) -> None:
        """An attempt went out; `pending_ms` of the prediction are prompts of others."""
        if pending_ms > MOST_OTHERS * predicted_ms or predicted_ms <= 0:
            return
        self._awaited[attempt] = _Awaited(worker, predicted_ms / self.of(worker))
        if len(self._awaited) > AWAITED:
            self._awaited.popitem(last=False)

    def reported(self, worker: str, report: LoadReport) -> None:
        """Take in the first tokens of a report."""
        for attempt, observed_ms in report.firsts:
            awaited = self._awaited.pop(attempt, None)
            if awaited and awaited.worker == worker:
                learned = self._speeds.get(worker, 1.0)
                slower = observed_ms > awaited.reference_ms * learned
                learned *= math.exp(STEP * (QUANTILE if slower else QUANTILE - 1))
                self._speeds[worker] = min(SLOWEST, max(FASTEST, learned))

    def keep(self, workers: Collection[str]) -> None:
        """Forget all other workers."""
        self._speeds = {worker: speed for worker, speed in self._speeds.items() if worker in workers}
