"""The event loop of a role's process."""

import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

YOUNG = 10_000
"""So many new objects are let be before the garbage collector looks for cycles among them; Python's own 700 are a few
jobs."""
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end on uvloop, with a garbage collector that seldom stops the loop, and never for long.

    What exists by now is code and settings, and never garbage: to look through all of it took 50 ms at a time, in which
    no token moved. Memory goes back by its reference counts as ever; only cycles wait for the collector.
    """
    gc.freeze()
    gc.set_threshold(YOUNG)
    return uvloop.run(work)
