"""What a replay found, as a table and as JSON: pure."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from protocol.wire import JsonObject
from scheduler.policy.replay import Comparison, Tally
from tokenfleet.cli.durations import in_words
from tokenfleet.plain import plain


def as_table(comparison: Comparison) -> RenderableType:
    """The recorded policy first, then the others."""
    if not comparison.rounds:
        return Text("Nothing was decided while this was recorded.")
    lasted = in_words((comparison.to_ms - comparison.from_ms) / 1000)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("policy", overflow="fold")
    for heading in ("starts", "elsewhere", "not then", "sooner", "refused", "p50", "p99"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row(*_row(comparison.recorded, f"{comparison.recorded.name} (recorded)"), style="bold")
    for tally in comparison.others:
        table.add_row(*_row(tally, tally.name))
    return Group(Text(f"{comparison.rounds:,} rounds in {lasted}", "dim"), table)


def _row(tally: Tally, name: str) -> list[RenderableType]:
    counts = (tally.assigned, tally.elsewhere, tally.withheld, tally.added, tally.refused)
    return [plain(name), *(f"{count:,}" for count in counts), _ms(tally.predicted(0.5)), _ms(tally.predicted(0.99))]


def _ms(value: float | None) -> str:
    return "-" if value is None else in_words(value / 1000)


def as_json(comparison: Comparison) -> JsonObject:
    """The same for machines."""
    return {
        "rounds": comparison.rounds,
        "from_ms": comparison.from_ms,
        "to_ms": comparison.to_ms,
        "recorded": _tally_json(comparison.recorded),
        "policies": [_tally_json(tally) for tally in comparison.others],
    }


def _tally_json(tally: Tally) -> JsonObject:
    return {
        "policy": tally.name,
        "starts": tally.assigned,
        "same": tally.same,
        "elsewhere": tally.elsewhere,
        "withheld": tally.withheld,
        "added": tally.added,
        "refused": tally.refused,
        "predicted_p50_ms": tally.predicted(0.5),
        "predicted_p99_ms": tally.predicted(0.99),
    }
