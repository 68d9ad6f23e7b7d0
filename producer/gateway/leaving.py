"""Cancels jobs whose clients have left and which nobody follows any more, on any gateway."""

import asyncio
from contextlib import suppress

from producer.fleet import Fleet
from producer.gateway.stays import Stays
from protocol import reads
from protocol.call import run
from protocol.errors import FleetError
from protocol.handle import Handle

CHECKS_S = (0.0, 0.2, 0.5, 1.0, 2.0)
"""Looked at so long after each other: our own subscription may end a moment after the client has."""


class Leavings:
    """What became of those that left: they have a moment to come back, here or elsewhere."""

    def __init__(self, fleet: Fleet, stays: Stays) -> None:
        """Ask `fleet`'s Redis who follows."""
        self._fleet = fleet
        self._stays = stays
        self._tasks: dict[Handle, asyncio.Task[None]] = {}
        self._closing = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many jobs may still be cancelled."""
        return len(self._tasks)

    def note(self, handle: Handle, unfollowed_s: float | None) -> None:
        """A client left this job; it is cancelled once nobody has followed it for so long, and never for None.

        Who came back and left again has that time anew.
        """
        if unfollowed_s is not None:
            if before := self._tasks.get(handle):
                before.cancel()
            self._tasks[handle] = task = asyncio.create_task(self._settle(handle, unfollowed_s))
            task.add_done_callback(lambda _: self._forget(handle, task))

    async def close(self, timeout_s: float) -> None:
        """Look at all that wait now, for `timeout_s` seconds at most: later, clients come back to other gateways."""
        self._closing.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=timeout_s)
            for task in late:
                task.cancel()

    def _forget(self, handle: Handle, task: asyncio.Task[None]) -> None:
        if self._tasks.get(handle) is task:
            del self._tasks[handle]

    async def _settle(self, handle: Handle, unfollowed_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(unfollowed_s):
                await self._closing.wait()
        for pause_s in CHECKS_S:
            await asyncio.sleep(pause_s)
            if self._stays.follows(handle):
                return
            with suppress(FleetError):
                (elsewhere,) = await run(self._fleet.redis, reads.followers([handle]))
                if not elsewhere:
                    await self._fleet.cancel(handle)
                    return
