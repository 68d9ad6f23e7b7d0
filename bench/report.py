"""How a measurement is shown: a table for people, one JSON object for machines."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that an issue asks for: `value` must be at least or at most `target`; None: nothing was measured."""

    name: str
    value: float | None
    target: float
    better: Literal["higher", "lower"]

    @property
    def met(self) -> bool:
        """Whether the figure is good enough; one that was not measured is not."""
        if self.value is None:
            return False
        return self.value >= self.target if self.better == "higher" else self.value <= self.target


def show(
    title: str,
    targets: Sequence[Target],
    figures: Mapping[str, float],
    *,
    as_json: bool,
    more: Mapping[str, object] | None = None,
) -> None:
    """Print targets and other figures; with `as_json` the tables go to stderr and the last line of stdout is JSON.

    Args:
        title: of the table of targets.
        targets: figures that an issue asks for.
        figures: those beside them.
        as_json: whether machines read it.
        more: what else the JSON holds.
    """
    console = Console(file=sys.stderr if as_json else sys.stdout, width=100)
    table = Table(title=title, title_justify="left")
    for heading in ("target", "value", "asked for", "met"):
        table.add_column(heading, justify="left" if heading == "target" else "right")
    for row in targets:
        sign = "≥" if row.better == "higher" else "≤"
        measured = "—" if row.value is None else f"{row.value:,.2f}"
        table.add_row(row.name, measured, f"{sign} {row.target:g}", "yes" if row.met else "NO")
    console.print(table)
    if figures:
        beside = Table(title="beside them", title_justify="left")
        beside.add_column("figure")
        beside.add_column("value", justify="right")
        for name, value in figures.items():
            beside.add_row(name, f"{value:,.2f}")
        console.print(beside)
    if as_json:
        rows = [{"name": row.name, "value": row.value, "target": row.target, "met": row.met} for row in targets]
        print(json.dumps({"targets": rows, "figures": dict(figures), **(more or {})}), flush=True)
