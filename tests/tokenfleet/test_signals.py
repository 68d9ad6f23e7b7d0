"""Signals cancel what runs, and its blocks clean up."""

import asyncio
import os
import signal

import pytest

from tests.support.waiting import eventually
from tokenfleet.signals import STOPPING, interruptible, stop_event


@pytest.mark.parametrize("number", STOPPING)
async def test_a_signal_interrupts_and_lets_blocks_clean_up(number: signal.Signals) -> None:
    cleaned = []

    async def work() -> None:
        with interruptible():
            try:
                os.kill(os.getpid(), number)
                await asyncio.Event().wait()
            finally:
                cleaned.append(number)

    # A KeyboardInterrupt inside a task would end pytest itself: it is caught where a command ends.
    async def command() -> bool:
        try:
            await work()
        except KeyboardInterrupt:
            return True
        return False

    assert await command()
    assert cleaned == [number]


async def test_being_cancelled_by_others_stays_a_cancellation() -> None:
    async def work() -> None:
        with interruptible():
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_second_signal_is_told_apart() -> None:
    seconds: list[bool] = []
    with stop_event(lambda: seconds.append(True)) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        assert not seconds
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually(lambda: bool(seconds))
