"""A hundred workers and ten thousand jobs on the live page: what one update costs, and what stays in memory."""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from playwright.async_api import Page

from bench.page.browser import PHONE, WIDE, Meter, grave_faults, opened, shown
from bench.page.served import serving
from bench.page.synthetic import JOBS, WORKERS, SyntheticFleet
from bench.report import Target, show

SETTLE_LOOKS = 20
"""Before the first measurement: compilers and caches are warm then."""
UPDATE_MS = 50
GROWTH = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement."""

    task_ms: Sequence[float]
    """Of the browser's main thread, for each look."""
    script_ms: Sequence[float]
    heap_bytes: tuple[float, float]
    """At its begin and end."""
    nodes: tuple[float, float]
    faults: Sequence[str]

    @property
    def growth(self) -> float:
        """Of the heap, as a share of what it was."""
        begin, end = self.heap_bytes
        return end / begin - 1


async def measure(looks: int, every_s: float, *, open_jobs: bool) -> Run:
    """Show so many looks of the large fleet, one each `every_s` seconds; with `open_jobs` all lists of jobs open."""
    fleet = SyntheticFleet()
    async with serving(fleet.read, every_s) as url, opened(url) as page:
        meter = await Meter.of(page)
        await shown(page, 1)
        if open_jobs:
            await page.get_by_label("Show the jobs of all workers").check()
        await shown(page, SETTLE_LOOKS)
        heap, nodes = await meter.heap_bytes(), await meter.nodes()
        tasks: list[float] = []
        scripts: list[float] = []
        await shown(page, 1)
        before = await meter.task_s()
        while len(scripts) < looks:
            took = await shown(page, 1)
            now = await meter.task_s()
            # Two looks may have been shown before we came to ask.
            tasks += [1_000 * (now - before) / len(took)] * len(took)
            scripts += took
            before = now
        ends = await meter.heap_bytes(), await meter.nodes()
        return Run(tasks, scripts, (heap, ends[0]), (nodes, ends[1]), await _faults(page, url))


async def _faults(page: Page, url: str) -> list[str]:
    """Of the large page, and of both sizes in the dark."""
    found = await grave_faults(page)
    for size in (WIDE, PHONE):
        async with opened(url, size, dark=True) as other:
            await shown(other, 1)
            found += await grave_faults(other)
    return found


def judge(run: Run) -> tuple[list[Target], dict[str, float]]:
    """What the issue asks for, and the figures beside it."""
    targets = [
        Target("one update, main thread, p95 (ms)", _p95(run.task_ms), UPDATE_MS, "lower"),
        Target("growth of the page's memory", run.growth, GROWTH, "lower"),
        Target("serious accessibility faults by axe", len(run.faults), 0, "lower"),
    ]
    figures = {
        "workers": WORKERS,
        "jobs": JOBS,
        "looks": len(run.task_ms),
        "one update, main thread, median (ms)": statistics.median(run.task_ms),
        "one update, our code, p95 (ms)": _p95(run.script_ms),
        "heap (MB)": run.heap_bytes[1] / 1e6,
        "growth of the page's nodes": run.nodes[1] / run.nodes[0] - 1,
    }
    return targets, figures


def _p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make test-page", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--closed", action="store_true", help="leave the lists of jobs closed, as the page comes")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    run = asyncio.run(measure(round(60 * options.minutes), 1.0, open_jobs=not options.closed))
    for fault in run.faults:
        print(fault, file=sys.stderr)
    show("test-page", *judge(run), as_json=options.json)


if __name__ == "__main__":
    main()
