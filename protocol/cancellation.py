"""Cancellation that is not lost."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def cancelled() -> bool:
    """Whether the current task was cancelled, even if the CancelledError never arrived.

    redis-py sends through `asyncio.wait_for`, which before Python 3.12 swallows a cancellation that comes in the same
    turn as the end of what it waits for (python/cpython#86296). So a loop around Redis calls must ask, too.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def afterwards(work: Coroutine[Any, Any, T]) -> T:
    """Run what a cancelled task has still to do, in a task of its own; another cancellation reaches it there.

    In a cancelled task, before Python 3.11.3 (Debian 12 has 3.11.2), a time limit that passes raises CancelledError and
    no TimeoutError (python/cpython#102780): ours, but also the one of 0 s by which redis-py looks for waiting data.
    """
    return await asyncio.create_task(work)
