"""Plays every fault of the matrix on real processes and prints what was expected, what was seen, and how long it took.

The scenarios are the test suite's own, with those that are too slow for it. Faults that are tested elsewhere are shown
by running those tests.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.report import Target, show
from tests.faults.matrix import Fault
from tests.faults.rows import ROWS
from tests.faults.stage import NotHere, Stage
from tests.support.nursery import ROOT, Nursery

TOLD = 160
"""Characters of a failure that are shown."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one fault.

    Attributes:
        met: what was expected was seen; None where this machine can't play it, or skips its tests.
        recovery_s: from the fault to the end of its effect; None where that means nothing.
        took_s: the whole scenario.
    """

    fault: Fault
    met: bool | None
    seen: str
    recovery_s: float | None
    took_s: float


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--only", default="", help="faults whose name holds this text")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    chosen = [fault for fault in ROWS if options.only in fault.name]
    results = []
    with Nursery() as nursery:
        for fault in chosen:
            result = asyncio.run(_played(fault, nursery)) if fault.scenario else _tested(fault)
            recovery = "" if result.recovery_s is None else f", recovered in {result.recovery_s:.2f} s"
            print(f"{_sign(result):3} {result.took_s:5.1f} s  {fault.name}{recovery}", file=sys.stderr, flush=True)
            results.append(result)
    _print(results, as_json=options.json)
    targets = [Target(result.fault.name, int(result.met), 1, "higher") for result in results if result.met is not None]
    times = {f"{r.fault.name} (recovery s)": round(r.recovery_s, 2) for r in results if r.recovery_s is not None}
    rows = [
        {"fault": r.fault.name, "expected": r.fault.expected, "seen": r.seen, "recovery_s": r.recovery_s, "met": r.met}
        for r in results
    ]
    show("faults", targets, times, as_json=options.json, more={"matrix": rows})


async def _played(fault: Fault, nursery: Nursery) -> Result:
    assert fault.scenario is not None  # noqa: S101 - for the type checker: the caller has looked
    began_s = time.monotonic()
    met: bool | None
    with tempfile.TemporaryDirectory() as folder:
        try:
            async with Stage(nursery, Path(folder), fault.server, fault.extra) as stage:
                seen = await fault.scenario(stage)
            met, told, recovery_s = True, seen.what, seen.recovery_s
        except NotHere as reason:
            met, told, recovery_s = None, f"not played: {reason}", None
        except Exception as error:  # noqa: BLE001 - whatever it is, this fault did not end as expected, and others follow
            told = f"{type(error).__name__}: {error}".splitlines()[0][:TOLD]
            met, recovery_s = False, None
    return Result(fault, met, told, recovery_s, time.monotonic() - began_s)


def _tested(fault: Fault) -> Result:
    """By the tests that it names."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *fault.tests]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    last = (done.stdout.strip().splitlines() or ["pytest said nothing"])[-1].strip("= ")
    return Result(fault, met_by(done.returncode, last), f"tests: {last}", None, time.monotonic() - began_s)


def met_by(status: int, last: str) -> bool | None:
    """What pytest's exit status and last line say; None where it skipped all, which shows nothing."""
    if status:
        return False
    return True if re.search(r"\b\d+ passed\b", last) else None


def _print(results: Sequence[Result], *, as_json: bool) -> None:
    table = Table(title="what was seen", title_justify="left", show_lines=True)
    for heading, right in (("fault", False), ("expected", False), ("seen", False), ("recovery", True), ("met", True)):
        table.add_column(heading, justify="right" if right else "left")
    for result in results:
        recovery = "" if result.recovery_s is None else f"{result.recovery_s:.2f} s"
        table.add_row(result.fault.name, result.fault.expected, result.seen, recovery, _sign(result))
    Console(file=sys.stderr if as_json else sys.stdout, width=140).print(table)


def _sign(result: Result) -> str:
    return "—" if result.met is None else "yes" if result.met else "NO"


if __name__ == "__main__":
    main()
