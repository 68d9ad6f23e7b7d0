"""The event loop of one simulated process: it runs when it is told to, by a clock that is given to it."""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from typing import Any

MOST_TURNS = 10_000


class _NoFiles:
    """Stands where a loop asks for sockets that are ready: there are none."""

    def select(self, timeout: float | None) -> Sequence[Any]:
        del timeout
        return ()


class ActorLoop(asyncio.BaseEventLoop):
    """Callbacks and timers, no sockets and no threads.

    Args:
        now: the virtual time in seconds.
    """

    _selector = _NoFiles()

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now

    def time(self) -> float:
        """The virtual time."""
        return self._now_s()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # noqa: ANN401 - asyncio's own signature
        """Run it here and now: there are no threads."""
        del executor
        future = self.create_future()
        future.set_result(func(*args))
        return future

    def turn(self) -> None:
        """Run all that is ready, and what becomes ready by that; nothing else happens meanwhile.

        Raises:
            RuntimeError: it does not come to rest.
        """
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for _ in range(MOST_TURNS):
                self._run_once()  # type: ignore[attr-defined]  # asyncio's own
                if not self.has_work(self._now_s()):
                    return
        finally:
            asyncio._set_running_loop(outer)
        raise RuntimeError("a process does not come to rest")

    def has_work(self, now_s: float) -> bool:
        """Whether something is ready to run."""
        if self._ready:  # type: ignore[attr-defined]  # asyncio's own
            return True
        due = self.next_timer()
        return due is not None and due <= now_s

    def next_timer(self) -> float | None:
        """When the next timer fires; None when there is none."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # asyncio's own
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]  # asyncio's own
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]  # asyncio's own
        return timers[0].when() if timers else None

    def _process_events(self, event_list: Sequence[Any]) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in `select`."""
