"""When a worker reports: in time, sooner when something happens, and never too often."""

import asyncio
from contextlib import suppress

CALM_S = 0.005
"""What has happened is told so much later at the earliest: what it set off, such as a first token, goes out before."""


class Cadence:
    """Lets one task wait for its next turn.

    Args:
        longest_s: a turn comes at least so often.
        shortest_s: however much happens, so much time lies between two turns; what is urgent does not wait for that.
    """

    def __init__(self, longest_s: float, shortest_s: float) -> None:
        self._longest_s, self._shortest_s = longest_s, shortest_s
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._last_s = 0.0

    def soon(self) -> None:
        """Something happened."""
        if self._timer is None and not self._due.is_set():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time() + CALM_S, self._last_s + self._shortest_s), self._due.set)

    def now(self) -> None:
        """Something happened that can't wait."""
        self._due.set()

    async def turn(self) -> None:
        """Wait; all that has happened up to its end is over with."""
        # No `wait_for`: before Python 3.12 it can swallow a cancellation.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._longest_s):
                await self._due.wait()
        self.stop()
        self._due.clear()
        self._last_s = asyncio.get_running_loop().time()

    def stop(self) -> None:
        """Let no timer run on."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
