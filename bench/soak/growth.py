"""What grew: pure arithmetic over samples."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median


@dataclass(slots=True)
class Series:
    """One figure over time."""

    values: list[float] = field(default_factory=list)

    @property
    def _judged(self) -> tuple[Sequence[float], Sequence[float]]:
        """The first and the last third of the last half: by then retention deletes as much as comes."""
        half = self.values[len(self.values) // 2 :]
        third = max(1, len(half) // 3)
        return half[:third], half[-third:]

    @property
    def growth_percent(self) -> float:
        """From the mean of the last half's first third to that of its last one."""
        early, late = self._judged
        return 100 * (fmean(late) / fmean(early) - 1)

    @property
    def added(self) -> float:
        """From the median of the last half's first third to that of its last one.

        What leaks stays open; what is open for a moment is no leak: Valkey reads /proc/self/stat ten times a second.
        """
        early, late = self._judged
        return median(late) - median(early)
