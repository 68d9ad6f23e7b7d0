"""Cancellation that is not lost."""

import asyncio


def cancelled() -> bool:
    """Whether the current task was cancelled, even if the CancelledError never arrived.

    redis-py sends through `asyncio.wait_for`, which before Python 3.12 swallows a cancellation that comes in the same
    turn as the end of what it waits for (python/cpython#86296). So a loop around Redis calls must ask, too.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
