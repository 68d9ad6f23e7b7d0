"""The comparison as a table for each trace, and as JSON."""

from itertools import groupby

from rich.table import Table

from bench.dispatch.cases import BASELINES, DEFAULT, Case, trace_of
from bench.dispatch.plan import bound, of
from bench.dispatch.rows import Results
from protocol.wire import JsonObject
from tokenfleet.simulate.summary import Summary

HEADINGS = ("policy", "goodput", "first p50", "p99", "token p50", "p99", "refused", "hits", "of bound")


def tables_of(results: Results) -> list[Table]:
    """One for each trace: all policies at each of its loads, times in ms."""
    by_trace = groupby(results.plan.compared, key=lambda case: case.trace)
    return [_table(trace, list(cases), results) for trace, cases in by_trace]


def _table(trace: str, cases: list[Case], results: Results) -> Table:
    table = Table(title=f"{trace_of(trace).name}, times in ms", title_justify="left")
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for case in cases:
        table.add_row(f"[b]×{case.scale:g} on {case.workers}[/b]")
        best = bound(case)
        for policy in (DEFAULT, *BASELINES):
            table.add_row(policy, *_cells(results.summaries[of(case, policy)], best))
        table.add_section()
    return table


def _cells(run: Summary, best: float) -> list[str]:
    times = [f"{ms:,.0f}" for ms in (run.first_ms.p50, run.first_ms.p99, run.token_ms.p50, run.token_ms.p99)]
    hits = [f"{run.hits:.1%}", f"{run.hits / best:.2f}"] if best else ["-", "-"]
    return [f"{run.goodput:.3f}", *times, f"{run.refused:,}", *hits]


def as_json(results: Results) -> JsonObject:
    """All runs, by their names."""
    generated = sorted({case.trace for case in results.plan.compared if trace_of(case.trace).missing})
    return {"generated": generated, "runs": {name: run.as_json() for name, run in results.summaries.items()}}
