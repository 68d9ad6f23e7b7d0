"""Pauses between repeats: they double, and are spread so that many workers don't come back at once."""

from secrets import SystemRandom

_CHANCE = SystemRandom()


class Backoff:
    """Pauses from `first_s` to `longest_s`, until something succeeds."""

    def __init__(self, first_s: float = 0.05, longest_s: float = 1.0) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._next_s = first_s

    def pause_s(self) -> float:
        """How long to pause after one more failure: up to half as much again as the last doubling says."""
        now_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return now_s * (1 + chance() / 2)

    def reset(self) -> None:
        """It succeeded."""
        self._next_s = self._first_s


def chance() -> float:
    """Uniform in [0, 1)."""
    return _CHANCE.random()
