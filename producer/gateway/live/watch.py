"""One reader of the fleet for all who look at it: it reads while anybody does, about once a second."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from redis.asyncio import Redis

from producer.dead import SetAside, list_dead
from producer.gateway.live.history import History, figures_of
from producer.gateway.live.look import Look
from producer.overview import Overview
from producer.overview_reader import OverviewReader
from protocol.errors import FleetError
from protocol.log import get_logger

EVERY_S = 1.0
LINGERS = 30
"""So many looks are taken once nobody looks any more: who loads the page anew finds its series."""
MOST_DEAD = 50
Read = Callable[[], Awaitable[tuple[Overview, Sequence[SetAside]]]]
_log = get_logger("gateway")


@dataclass(frozen=True, slots=True)
class Away:
    """The fleet can't be read now."""

    why: str


def reading(redis: Redis) -> Read:
    """Reads the fleet, and the jobs that were last set aside."""
    reader = OverviewReader(redis)

    async def read() -> tuple[Overview, Sequence[SetAside]]:
        overview = await reader.look()
        return overview, await list_dead(redis, limit=MOST_DEAD) if overview.dead else ()

    return read


class Watch:
    """What all of a gateway's viewers see."""

    def __init__(self, read: Read, every_s: float = EVERY_S) -> None:
        """Call `read` each `every_s` seconds while there are viewers."""
        self.history = History()
        self._read, self._every_s = read, every_s
        self._viewers = self._number = 0
        self._newest: Look | Away | None = None
        self._fresh = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def looks(self) -> AsyncGenerator[Look | Away, None]:
        """The newest look, then each newer one; who takes long misses those between. Ends when the watch does."""
        last: Look | Away | None = None
        with self._viewing():
            while self._task is not None and not self._closed:
                if self._newest is None or self._newest is last:
                    await self._fresh.wait()
                else:
                    last = self._newest
                    yield last

    def close(self) -> None:
        """Nobody sees anything any more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._wake()

    @contextmanager
    def _viewing(self) -> Iterator[None]:
        self._viewers += 1
        if self._task is None and not self._closed:
            self._newest = None
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)
        try:
            yield
        finally:
            self._viewers -= 1

    async def _run(self) -> None:
        unseen = 0
        while self._viewers or unseen <= LINGERS:
            self._newest = await self._look()
            self._wake()
            unseen = 0 if self._viewers else unseen + 1
            await asyncio.sleep(self._every_s)

    async def _look(self) -> Look | Away:
        try:
            overview, set_aside = await self._read()
        except FleetError as error:
            return Away(error.message)
        self._number += 1
        figures = figures_of(overview)
        self.history.note(overview.now_ms, figures)
        return Look(self._number, overview, set_aside, figures)

    def _wake(self) -> None:
        self._fresh.set()
        self._fresh = asyncio.Event()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Viewers of a reader that failed come again, and begin another one."""
        self._task = None
        if not task.cancelled() and (error := task.exception()):
            _log.error("watch_failed", kind=type(error).__name__)
        self._wake()
