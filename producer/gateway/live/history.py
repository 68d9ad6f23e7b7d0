"""How a fleet's figures went in the last minutes: pure."""

from collections import deque
from collections.abc import Mapping

from producer.overview import Overview
from protocol.wire import JsonObject

KEPT = 300
"""So many looks: five minutes at one a second."""
Figures = Mapping[str, float | None]


def figures_of(overview: Overview) -> dict[str, float | None]:
    """What is drawn over time: each lane's depth by `pool.number/priority`, and the fleet's sums."""
    lanes = {f"{shard.shard}/{lane.priority}": lane.depth for shard in overview.shards for lane in shard.lanes}
    speed = overview.tokens_per_s
    return {
        **lanes,
        "tokens_per_s": None if speed is None else round(speed, 1),
        "first_token_ms": overview.first_tokens.p50_ms,
        "held": sum(worker.held for shard in overview.shards for worker in shard.workers),
        "waiting": sum(lanes.values()),
        "dead": overview.dead,
    }


class History:
    """The last looks' figures, the oldest first."""

    def __init__(self, kept: int = KEPT) -> None:
        """Keep `kept` looks."""
        self._points: deque[tuple[int, Figures]] = deque(maxlen=kept)

    def note(self, now_ms: int, figures: Figures) -> None:
        """Add a look of that time (ms of Redis's clock)."""
        self._points.append((now_ms, figures))

    def to_json(self) -> JsonObject:
        """The times, and for each name as many values; null where there was none."""
        names = dict.fromkeys(name for _, figures in self._points for name in figures)
        series = {name: [figures.get(name) for _, figures in self._points] for name in names}
        return {"times": [time_ms for time_ms, _ in self._points], "series": series}
