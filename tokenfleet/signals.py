"""Signals that ask us to stop, as an event; a second one is a wish to stop at once."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_event(on_second: Callable[[], None]) -> Iterator[asyncio.Event]:
    """An event that the first signal sets; each further one calls `on_second`."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def notice() -> None:
        if event.is_set():
            on_second()
        event.set()

    for number in STOPPING:
        loop.add_signal_handler(number, notice)
    try:
        yield event
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn each signal into what Ctrl-C is in an event loop: the task is cancelled, and its blocks clean up.

    Raises:
        KeyboardInterrupt: a signal came.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    came = False

    def interrupt() -> None:
        nonlocal came
        came = True
        if task:
            task.cancel()

    for number in STOPPING:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if came:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)
