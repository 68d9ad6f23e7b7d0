"""Time as a parameter, so that tests can turn it."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock that never goes backwards."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment."""
        ...


class SystemClock:
    """The process's own clock."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.monotonic()
