"""Tells whoever waits for a batch that no worker takes its rows: a batch that stands still looks like a slow one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from protocol.errors import FleetError
from tokenfleet.terminal import harmless

if TYPE_CHECKING:
    from producer.batch import Progress
    from producer.fleet import Fleet

EVERY_S = 3.0
"""So long no row has ended before the workers are looked at, and between two looks."""
AGAIN_S = 60.0
TURN_S = 1.0
Clock = Callable[[], float]


def none_serves(model: str) -> str:
    """What is said of a model that no active worker serves."""
    return f"no active worker serves {harmless(model)}: rows wait; `tokenfleet workers list` shows them"


class Unserved:
    """Says that no active worker serves a batch's model, each minute, and once that one does again."""

    def __init__(self, fleet: "Fleet", say: Callable[[str], None], clock: Clock) -> None:
        """`clock` gives seconds."""
        self._fleet, self._say, self._clock = fleet, say, clock
        self._looked_s = clock()
        self._rows = 0
        self._told_s: float | None = None

    async def look(self, news: "Progress") -> None:
        """With each news, as often as there are any: the workers are read only where rows stand still."""
        from producer.workers import is_served

        now_s, moved = self._clock(), news.rows_out != self._rows
        self._rows = news.rows_out
        waits = news.model and news.rows_out < news.rows_total
        if not waits or (moved and self._told_s is None):
            self._looked_s = now_s
        if now_s - self._looked_s < EVERY_S:
            return
        self._looked_s = now_s
        with suppress(FleetError):
            self._tell(news.model, now_s, served=await is_served(self._fleet.redis, news.model))

    def _tell(self, model: str, now_s: float, *, served: bool) -> None:
        if not served and (self._told_s is None or now_s - self._told_s >= AGAIN_S):
            self._told_s = now_s
            self._say(none_serves(model))
        elif served and self._told_s is not None:
            self._told_s = None
            self._say(f"an active worker serves {harmless(model)} now")


@asynccontextmanager
async def unserved_told(
    fleet: "Fleet", say: Callable[[str], None], last: Callable[[], "Progress | None"]
) -> AsyncIterator[None]:
    """For the length of a block; `last` gives the news of the batch that runs, once there are any."""
    watching = asyncio.create_task(_watch(Unserved(fleet, say, asyncio.get_running_loop().time), last))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(unserved: Unserved, last: Callable[[], "Progress | None"]) -> None:
    while True:
        await asyncio.sleep(TURN_S)
        if news := last():
            await unserved.look(news)
