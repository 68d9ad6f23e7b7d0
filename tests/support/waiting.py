"""Waiting for conditions instead of sleeping, and a clock that tests turn."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")


@overload
async def eventually(condition: Callable[[], Awaitable[T]], timeout_s: float = 5.0) -> T: ...
@overload
async def eventually(condition: Callable[[], T], timeout_s: float = 5.0) -> T: ...
async def eventually(condition: Callable[[], T | Awaitable[T]], timeout_s: float = 5.0) -> T:
    """Poll `condition` (plain or async) until it is truthy, and return what it gave.

    An AssertionError inside counts as not yet; when time is up it is raised as it was.
    """
    loop = asyncio.get_running_loop()
    give_up, pause = loop.time() + timeout_s, 0.002
    while True:
        late = loop.time() > give_up
        try:
            value = condition()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return value
            assert not late, f"not within {timeout_s} s: {condition!r}"
        except AssertionError:
            if late:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.05)


class FakeClock:
    """A `protocol.clock.Clock` that stands still until it is advanced."""

    def __init__(self, start_s: float = 1_000.0) -> None:
        self._now_s = start_s

    def monotonic(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        self._now_s += seconds
