"""The reader of a worker's inbox."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from redis.asyncio import Redis

from protocol import reads
from protocol.call import run
from protocol.clock import Clock
from protocol.errors import FleetError
from protocol.handle import Shard
from protocol.log import get_logger
from protocol.messages import InboxEntry
from protocol.store import BLOCK_MS
from worker.backoff import Backoff

BEGINNING = "0"
MISSED_S = 0.2
"""For so long beats may find Redis to hold more than we know: assignments are on their way."""
_log = get_logger("worker")


class Inbox:
    """Reads entries as they come, and everything again whenever something may have been missed.

    A blocking read that was cut off may have been delivered and not seen, so each new beginning reads from the start;
    whoever takes the entries skips what it knows.

    Args:
        redis: where from.
        shard: of the worker.
        worker: the id of this life.
        take: handles entries; an error makes them come again.
        clock: for how long something has been missing.
    """

    def __init__(
        self,
        redis: Redis,
        shard: Shard,
        worker: str,
        take: Callable[[Sequence[InboxEntry]], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._redis, self._shard, self._worker, self._take, self._clock = redis, shard, worker, take, clock
        self._last = BEGINNING
        self._missing_since_s: float | None = None

    def compare(self, held: int, known: int) -> None:
        """After a beat: Redis counts `held` jobs of ours, we know of `known`."""
        now_s = self._clock.monotonic()
        if held <= known:
            self._missing_since_s = None
        elif self._missing_since_s is None:
            self._missing_since_s = now_s
        elif now_s - self._missing_since_s >= MISSED_S:
            self._missing_since_s = None
            self._last = BEGINNING

    async def run(self) -> None:
        """Read until cancelled."""
        backoff = Backoff()
        while True:
            try:
                await self._read()
            except FleetError as error:
                _log.debug("inbox_unread", code=error.code)
                self._last = BEGINNING
                await asyncio.sleep(backoff.pause_s())
            else:
                backoff.reset()

    async def _read(self) -> None:
        after = self._last
        entries = await run(self._redis, reads.inbox_after(self._shard, self._worker, after, BLOCK_MS))
        if not entries:
            return
        await self._take(entries)
        # What has begun goes to its engine before more is asked for: a turn for its task, and one for aiohttp's writer.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if self._last == after:
            # Unless a beat has asked to begin again meanwhile.
            self._last = entries[-1].entry_id
