"""Long work on files, off the event loop."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(
    work: Callable[[], T], stop: threading.Event | None = None, undo: Callable[[T], object] | None = None
) -> T:
    """Run `work` in a thread. Whoever is cancelled sets `stop`, waits for it, and hands what came of it to `undo`."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        if stop:
            stop.set()
        await asyncio.wait([working])
        if undo and not working.exception():
            await asyncio.to_thread(undo, working.result())
        raise
