"""How a worker is told to stop."""

import asyncio


class StopSignals:
    """First signal: take nothing more and finish what runs; second: stop at once.

    Attributes:
        drain: set by the first.
        now: set by the second.
    """

    def __init__(self) -> None:
        self.drain, self.now = asyncio.Event(), asyncio.Event()

    def signal(self) -> None:
        """One more signal came."""
        if self.drain.is_set():
            self.now.set()
        self.drain.set()
