"""Runs on up to two processes, each told when it ends."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")

MOST_PROCESSES = 2


def run_all(tasks: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """What each task yields, by its name; they begin in their order."""
    processes = min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
    began, results = time.perf_counter(), dict[str, T]()
    with ProcessPoolExecutor(processes) as pool:
        names = {pool.submit(_timed, task): name for name, task in tasks.items()}
        for number, future in enumerate(as_completed(names), 1):
            name = names[future]
            results[name], took_s = future.result()
            so_far = time.perf_counter() - began
            print(f"{so_far:5.0f} s  {number}/{len(tasks)}  {name}: {took_s:.0f} s", file=sys.stderr, flush=True)
    return results


def _timed(task: Callable[[], T]) -> tuple[T, float]:
    """What it yields, and how many seconds it computed."""
    began = time.process_time()
    return task(), time.process_time() - began
