"""How far predicted first tokens are from those that came: what a prediction is worth."""

from collections import OrderedDict, deque
from collections.abc import Sequence

from protocol.messages import LoadReport

AWAITED = 4_096
"""First tokens that are waited for; those of jobs that never brought one are forgotten in order."""
KEPT = 512
FEWEST = 20
"""Fewer say nothing about percentiles."""
SHORTEST_MS = 5.0
"""A prediction counts as no shorter: below that, the way through Redis is what was observed."""
PERCENTILES = (0.1, 0.5, 0.9)


class Predictions:
    """Compares; bounded."""

    def __init__(self) -> None:
        self._awaited: OrderedDict[int, float] = OrderedDict()
        self._ratios: deque[float] = deque(maxlen=KEPT)

    def assigned(self, attempt: int, predicted_ms: float) -> None:
        """An attempt went out, and its first token should come so soon."""
        if predicted_ms > 0:
            self._awaited[attempt] = predicted_ms
            if len(self._awaited) > AWAITED:
                self._awaited.popitem(last=False)

    def reported(self, report: LoadReport) -> None:
        """Take in the first tokens that a report tells of; one that is told twice counts once."""
        for attempt, observed_ms in report.firsts:
            predicted_ms = self._awaited.pop(attempt, None)
            if predicted_ms is not None:
                self._ratios.append(max(observed_ms, SHORTEST_MS) / max(predicted_ms, SHORTEST_MS))

    def observed(self) -> Sequence[float]:
        """The percentiles of observed over predicted; none before enough came."""
        if len(self._ratios) < FEWEST:
            return ()
        ordered = sorted(self._ratios)
        return tuple(round(ordered[int(share * (len(ordered) - 1))], 3) for share in PERCENTILES)
