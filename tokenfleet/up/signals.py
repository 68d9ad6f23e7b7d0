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
