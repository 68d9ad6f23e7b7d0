"""Tells whoever runs a batch that Redis is away, and when it is back: the batch itself only waits."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from protocol.errors import FleetError

if TYPE_CHECKING:
    from producer.fleet import Fleet

EVERY_S = 1.0


@asynccontextmanager
async def outages_told(fleet: "Fleet", say: Callable[[str], None], every_s: float = EVERY_S) -> AsyncIterator[None]:
    """For the length of a block, `say` each time that Redis went away, naming it without its password, or is back."""
    watching = asyncio.create_task(_watch(fleet, say, every_s))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(fleet: "Fleet", say: Callable[[str], None], every_s: float) -> None:
    from protocol.store import redacted, wait_until_up

    where = redacted(fleet.settings.store_url)
    told: list[str] = []

    def away() -> None:
        told.append(where)
        say(f"Redis at {where} does not answer: the batch waits for it")

    while True:
        # Whatever else Redis may say is for the batch to judge.
        with suppress(FleetError):
            await wait_until_up(fleet.redis, math.inf, away)
            if told:
                told.clear()
                say(f"Redis at {where} is back")
        await asyncio.sleep(every_s)
