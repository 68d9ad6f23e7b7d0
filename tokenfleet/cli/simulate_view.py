"""Simulated runs as tables and as JSON: pure."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table

from protocol.wire import JsonObject
from tokenfleet.cli.durations import in_words
from tokenfleet.plain import plain
from tokenfleet.simulate.plan import Plan
from tokenfleet.simulate.summary import Summary

Runs = Mapping[str, Summary]
"""By the policy's name."""
_EXTRA = ("cancelled", "unfinished", "reruns", "offline_tokens")
"""What is shown where there is any."""


def as_tables(plan: Plan, runs: Runs) -> RenderableType:
    """A row for each policy, and how busy each worker was."""
    first = next(iter(runs.values()))
    title = f"{plan.trace.name} ×{plan.scale:g}: {first.requests:,} requests in {in_words(first.seconds)}"
    table = _table(
        f"{title}; times in ms", "policy", "goodput", "first p50", "p99", "token p50", "p99", "refused", "hits"
    )
    for policy, run in runs.items():
        table.add_row(policy, f"{run.goodput:.3f}", *_ms(run), f"{run.refused:,}", f"{run.hits:.1%}")
    extra = [name for name in _EXTRA if any(getattr(run, name) for run in runs.values())]
    beside = _table("beside them", "policy", *(name.replace("_", " ") for name in extra))
    for policy, run in runs.items():
        beside.add_row(policy, *(f"{getattr(run, name):,}" for name in extra))
    return Group(table, *([beside] if extra else []), _busy(runs))


def _busy(runs: Runs) -> Table:
    table = _table("busy", "worker", *runs)
    for worker in next(iter(runs.values())).utilisation:
        table.add_row(plain(worker), *(f"{run.utilisation.get(worker, 0):.0%}" for run in runs.values()))
    return table


def _ms(run: Summary) -> list[str]:
    return [f"{time:,.0f}" for times in (run.first_ms, run.token_ms) for time in (times.p50, times.p99)]


def _table(title: str, *headings: str) -> Table:
    table = Table(title=plain(title, "table.title"), title_justify="left", box=None, padding=(0, 1), header_style="dim")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    return table


def as_json(plan: Plan, runs: Runs) -> JsonObject:
    """The same for machines."""
    return {
        "trace": plan.trace.name,
        "missing": plan.trace.missing,
        "scale": plan.scale,
        "workers": plan.workers,
        "report_ms": plan.report_ms,
        "seed": plan.seed,
        "runs": {policy: run.as_json() for policy, run in runs.items()},
    }
