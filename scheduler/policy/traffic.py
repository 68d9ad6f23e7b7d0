"""When there were online and offline jobs last: each kind leaves room for the other."""

import math
from dataclasses import dataclass

from scheduler.policy.view import Lately

ONLINE_MS = 60_000.0
"""So long after the last online job offline work goes on leaving room for the next."""
OFFLINE_MS = 5_000.0
"""So long after its last start offline work is taken to fill the workers."""


@dataclass(slots=True)
class Traffic:
    """The moments, ms of the dispatcher's clock."""

    online_ms: float = -math.inf
    """An online job was seen."""
    offline_ms: float = -math.inf
    """An offline job was started."""

    def lately(self, now_ms: float) -> Lately:
        """Which of them were so lately that they still count; not after a clock that went back by more."""
        return Lately(abs(now_ms - self.online_ms) < ONLINE_MS, abs(now_ms - self.offline_ms) < OFFLINE_MS)
