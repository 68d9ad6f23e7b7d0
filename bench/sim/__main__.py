"""`make sim`: many seeds on all cores, or one seed with its trace."""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from bench.report import Target, show
from bench.sim.planted import PLANTED, play
from bench.sim.run import Report

SEEDS, SEEDS_A_BUG = 200, 200
CHUNK = 4
MANY, MANY_S = 2_000, 1_200.0
"""So many seeds within so many seconds."""
MINIMA = {"jobs a seed": 30, "workers a seed": 3, "calls a seed": 500, "faults a seed": 5}
HASH_SEED = "PYTHONHASHSEED"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many, from 0 on")
    parser.add_argument("--seed", type=int, help="this one alone, with its trace")
    parser.add_argument("--planted", choices=sorted(PLANTED), help="with --seed: under this bug")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    if os.environ.get(HASH_SEED) != "0":
        # The order of sets must not differ from one process to the next.
        os.execve(sys.executable, [sys.executable, "-m", "bench.sim", *sys.argv[1:]], {**os.environ, HASH_SEED: "0"})  # noqa: S606 - our own command line
    if options.seed is not None:
        sys.exit(_show_one(options.seed, options.planted))
    _show_many(options.seeds, options.processes, as_json=options.json)


def _show_one(seed: int, bug: str | None) -> int:
    report = play(seed, bug, traced=True)
    print(*report.trace, sep="\n")
    counts = f"{report.jobs} jobs, {report.workers} workers, {report.calls} calls, {len(report.faults)} faults"
    print(f"seed {seed}: {counts}, trace {report.digest[:16]}: {', '.join(report.faults)}")
    print(report.broken or "every rule held")
    return 1 if report.broken else 0


def _show_many(seeds: int, processes: int, *, as_json: bool) -> None:
    began_s = time.monotonic()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        reports = list(_told(pool.map(play, range(seeds), chunksize=CHUNK), seeds))
        took_s = time.monotonic() - began_s
        found = {bug: _seeds_to_find(pool, bug, processes) for bug in PLANTED}
    least = {
        "jobs a seed": min(report.jobs for report in reports),
        "workers a seed": min(report.workers for report in reports),
        "calls a seed": min(report.calls for report in reports),
        "faults a seed": min(len(report.faults) for report in reports),
    }
    targets = [Target("violations", sum(bool(report.broken) for report in reports), 0, "lower")]
    targets += [Target(f"seeds to find {bug}", found[bug], SEEDS_A_BUG, "lower") for bug in PLANTED]
    targets += [Target(f"fewest {name}", least[name], minimum, "higher") for name, minimum in MINIMA.items()]
    targets.append(pace(len(reports), took_s))
    show("sim", targets, _figures(reports, took_s), as_json=as_json)


def pace(seeds: int, took_s: float) -> Target:
    """What many seeds would take at the rate of these."""
    return Target(f"seconds for {MANY} seeds, at this rate", took_s / seeds * MANY, MANY_S, "lower")


def _figures(reports: Iterable[Report], took_s: float) -> dict[str, float]:
    done = list(reports)
    return {
        "seeds": len(done),
        "seconds": took_s,
        "seeds/s": len(done) / took_s,
        "jobs": sum(report.jobs for report in done),
        "calls": sum(report.calls for report in done),
        "faults": sum(len(report.faults) for report in done),
        "calls lost, doubled or late": sum(report.calls_hurt for report in done),
        "strikes": sum(report.strikes for report in done),
        "texts begun anew": sum(report.restarts for report in done),
        "jobs submitted again after a loss": sum(report.lost for report in done),
        "virtual hours": sum(report.virtual_s for report in done) / 3600,
    }


def _told(reports: Iterable[Report], seeds: int) -> Iterator[Report]:
    """Pass the reports on; a broken rule is told at once."""
    for number, report in enumerate(reports, 1):
        if report.broken:
            print(f"make sim SEED={report.seed}: {report.broken}", file=sys.stderr)
        if number % 100 == 0:
            print(f"{number} of {seeds} seeds", file=sys.stderr)
        yield report


def _seeds_to_find(pool: ProcessPoolExecutor, bug: str, processes: int) -> int:
    """How many seeds it took; one more than there are when none finds it."""
    for first in range(0, SEEDS_A_BUG, processes):
        some = range(first, min(first + processes, SEEDS_A_BUG))
        for seed, report in zip(some, pool.map(play, some, [bug] * len(some)), strict=True):
            if report.broken:
                print(f"{bug}: seed {seed}: {report.broken.splitlines()[-1]}", file=sys.stderr)
                return seed + 1
    return SEEDS_A_BUG + 1


if __name__ == "__main__":
    main()
