"""Requests that are being answered: each ends when its client leaves, or when this gateway closes; files too."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

from protocol.handle import Handle

Reason = Literal["left", "closing"]
Gone = Callable[[], Awaitable[None]]
"""Returns once the client has left."""


class Ended(Exception):
    """The client left, or the gateway closes, before the answer was complete."""

    def __init__(self, reason: Reason) -> None:
        """Say which."""
        super().__init__(reason)
        self.reason = reason


class _Stay:
    """One request; ending it cancels its task once."""

    def __init__(self, task: "asyncio.Task[object]") -> None:
        self._task = task
        self.reason: Reason | None = None

    def end(self, reason: Reason) -> None:
        if self.reason is None:
            self.reason = reason
            self._task.cancel()


class Stays:
    """All of a gateway's. The job that a request is about counts as followed here as long as the request stays."""

    def __init__(self) -> None:
        """None yet."""
        self._open: set[_Stay] = set()
        self._following: Counter[Handle] = Counter()
        self._fewer = asyncio.Event()

    def __len__(self) -> int:
        """How many are being answered."""
        return len(self._open)

    def follows(self, handle: Handle) -> bool:
        """Whether a request of this gateway is about the job."""
        return handle in self._following

    @asynccontextmanager
    async def of(self, handle: Handle, gone: Gone) -> AsyncIterator[None]:
        """Answer one request within the block.

        Raises:
            Ended: the block was cut short.
        """
        async with self._stay() as stay:
            watcher = asyncio.create_task(_watch(gone, stay))
            self._following[handle] += 1
            try:
                yield
            finally:
                watcher.cancel()
                self._following[handle] -= 1
                if not self._following[handle]:
                    del self._following[handle]

    @asynccontextmanager
    async def of_file(self) -> AsyncIterator[None]:
        """Take or send a file within the block: it is about no job, and notices itself that its client has left.

        Raises:
            Ended: this gateway closes; the block was cut short.
        """
        async with self._stay():
            yield

    def end_all(self) -> None:
        """This gateway closes."""
        for stay in list(self._open):
            stay.end("closing")

    async def until_empty(self, timeout_s: float) -> bool:
        """Wait until all are answered; False when some are not within `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._open:
                    self._fewer.clear()
                    await self._fewer.wait()
        except TimeoutError:
            return False
        return True

    @asynccontextmanager
    async def _stay(self) -> AsyncIterator[_Stay]:
        task = asyncio.current_task()
        assert task, "requests are answered by tasks"  # noqa: S101 - for the type checker: uvicorn starts one for each
        stay = _Stay(task)
        self._open.add(stay)
        try:
            yield stay
        except asyncio.CancelledError:
            if stay.reason is None:
                raise
            task.uncancel()
            raise Ended(stay.reason) from None
        finally:
            self._open.discard(stay)
            self._fewer.set()


async def _watch(gone: Gone, stay: _Stay) -> None:
    await gone()
    stay.end("left")
