"""Which core a process runs on, and how long it ran."""

import os
from collections.abc import Iterable
from contextlib import suppress

import psutil


def pin(process: int, *cores: int) -> None:
    """Move all threads of a process to these cores; threads that it starts later stay there."""
    # The call takes thread ids: given a process id, it would move the main thread only.
    for thread in psutil.Process(process).threads():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread.id, cores)


def pin_server(server: int, front: int, engine: int) -> None:
    """Move an API server, or what holds an `AsyncLLM`, to the core `front`, and its engine's processes to `engine`."""
    pin(server, front)
    for child in psutil.Process(server).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            pin(child.pid, engine)


def cpu_seconds(processes: Iterable[int]) -> float:
    """CPU time, user and system, of these processes so far; their children are not counted."""
    times = [psutil.Process(process).cpu_times() for process in processes]
    return sum(taken.user + taken.system for taken in times)
