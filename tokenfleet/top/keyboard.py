"""Single keys from a terminal, without waiting for the end of a line."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

READ_AT_ONCE = 64


@contextmanager
def keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Call `on_key` with each; Ctrl-C stays a signal. Does nothing where stdin is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    number, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(number)

    def read() -> None:
        pressed = os.read(number, READ_AT_ONCE)
        if not pressed:
            # The terminal is gone: it would be ready for ever.
            loop.remove_reader(number)
        for key in pressed.decode(errors="replace"):
            on_key(key)

    tty.setcbreak(number)
    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
