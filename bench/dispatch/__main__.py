"""`make bench-dispatch`: the default policy beside the peers' on real traces, and what else dispatch must hold."""

import argparse
import sys
import time

from rich.console import Console

from bench.dispatch.cases import trace_of
from bench.dispatch.cost import decision_us
from bench.dispatch.plan import FULL, QUICK
from bench.dispatch.pool import run_all
from bench.dispatch.rows import Results, rows_of
from bench.dispatch.tables import as_json, tables_of
from bench.report import Target, show


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(prog="make bench-dispatch", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the traces' beginnings only, in minutes; the targets are meant for whole traces and are missed by some",
    )
    options = parser.parse_args()
    began, plan = time.perf_counter(), QUICK if options.quick else FULL
    for trace in sorted({case.trace for case in plan.compared}):
        if missing := trace_of(trace).missing:
            print(f"{missing}. Running on a GENERATED trace instead.", file=sys.stderr)
    results = Results(plan, figures=run_all(plan.figures()), summaries=run_all(plan.summaries()))
    console = Console(file=sys.stderr if options.json else sys.stdout, width=100)
    for table in tables_of(results):
        console.print(table)
    targets = [*rows_of(results), *_cost()]
    figures = {**results.figures, "minutes": (time.perf_counter() - began) / 60}
    show("dispatch; misses = 1 − goodput", targets, figures, as_json=options.json, more=as_json(results))


def _cost() -> list[Target]:
    base, wide, deep = decision_us(16, 1_000), decision_us(1_000, 1_000), decision_us(16, 1_000_000)
    return [
        Target("decision, µs a job at 16 workers and 1,000 queued", base, 75, "lower"),
        Target("its growth to 1,000 workers", wide / base, 2, "lower"),
        Target("its growth to a million queued", deep / base, 1.5, "lower"),
    ]


if __name__ == "__main__":
    main()
