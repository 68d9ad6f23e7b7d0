"""Looks at a fleet again and again and draws what it sees, also while Redis is away."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, ConsoleDimensions
from rich.live import Live

from producer.overview import Overview
from protocol.errors import StoreUnavailable
from tokenfleet.signals import stop_event
from tokenfleet.top.keyboard import keys
from tokenfleet.top.view import Moment, screen

LEAST_PATIENCE_S = 2.0
"""A look that takes longer is given up: the screen says that Redis is silent."""
USUAL = (80, 24)
"""Columns and lines of a terminal that does not tell."""
Look = Callable[[], Awaitable[Overview]]


@dataclass(slots=True)
class _Known:
    """The last overview, and since when there was none."""

    overview: Overview | None = None
    at_s: float = 0.0
    trouble: str = ""


async def watch(look: Look, where: str, every_s: float, console: Console) -> None:
    """Draw until `q`, Ctrl-C or another signal.

    Args:
        look: reads one moment.
        where: Redis's URL, fit to be shown.
        every_s: how often to look.
        console: a terminal.

    Raises:
        FleetError: Redis answers, and refuses: no later look would see more.
    """
    loop, known = asyncio.get_running_loop(), _Known()

    def draw() -> None:
        silent_s = loop.time() - known.at_s
        moment = Moment(where, datetime.now().astimezone(), known.overview, known.trouble, silent_s)
        console.size = _size(console)
        live.update(screen(moment, *console.size), refresh=True)

    with Live(console=console, screen=True, auto_refresh=False) as live, stop_event(lambda: None) as stop:
        loop.add_signal_handler(signal.SIGWINCH, draw)
        try:
            with keys(lambda key: stop.set() if key in "qQ\x04" else None):
                while not stop.is_set():
                    began = loop.time()
                    await _until(stop, _look(look, known, max(LEAST_PATIENCE_S, every_s)))
                    draw()
                    await _pause(stop, began + every_s - loop.time())
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


def _size(console: Console) -> ConsoleDimensions:
    """The terminal's own: `COLUMNS` and `LINES`, which some shells export, stay what they were when it changes."""
    columns, lines = os.get_terminal_size(console.file.fileno())
    return ConsoleDimensions(columns or USUAL[0], lines or USUAL[1])


async def _until(stop: asyncio.Event, work: Awaitable[None]) -> None:
    """Do it, unless a stop comes first."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


async def _look(look: Look, known: _Known, patience_s: float) -> None:
    try:
        async with asyncio.timeout(patience_s):
            known.overview = await look()
    except TimeoutError:
        known.trouble = "Redis is silent"
    except StoreUnavailable as error:
        known.trouble = f"Redis is away: {error.message}"
    else:
        known.trouble, known.at_s = "", asyncio.get_running_loop().time()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()
