"""Lets what begins go ahead of the streams that go on, in a worker and in a gateway.

An engine's step has a token for each of its requests at once: a first token or a new request that comes behind them
would wait until all of these are dealt with.
"""

import asyncio
from collections import deque

AT_ONCE = 4
"""So many go on in one turn of the event loop; between two turns it looks at what has come."""


class Turns:
    """A queue of those that go on, in the order in which they came; it costs each a turn of the event loop at least."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return when it is this task's turn."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._next)
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        for _ in range(min(AT_ONCE, len(self._waiting))):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
