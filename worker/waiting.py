"""Waiting that a signal can end."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from protocol.errors import LibraryMissing, StoreFull, StoreUnavailable
from worker.backoff import Backoff

T = TypeVar("T")


async def unless(signal: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns; None, with the work cancelled, when the signal comes first."""
    working, signalled = asyncio.ensure_future(work), asyncio.ensure_future(signal.wait())
    try:
        await asyncio.wait([working, signalled], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, signalled):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await working


async def until_answered(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat `attempt` for as long as Redis is away, not set up, or can't write to its disk."""
    backoff = Backoff()
    while True:
        try:
            return await attempt()
        except (StoreUnavailable, StoreFull, LibraryMissing):
            await asyncio.sleep(backoff.pause_s())
