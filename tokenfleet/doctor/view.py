"""The doctor's report as text and as JSON. Pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from protocol.wire import JsonObject
from tokenfleet.doctor.finding import Finding

MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "bold red")}


def as_text(findings: Sequence[Finding], where: str) -> RenderableType:
    """A line for each, what to change below those that are not well, and the sum."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark, style = MARKS[finding.level]
        said: list[RenderableType] = [Text(finding.said)]
        if finding.advice:
            said.append(Padding(Text(f"→ {finding.advice}", style), (0, 0, 0, 2)))
        table.add_row(Text(mark, style), finding.check, Group(*said))
    fails, warns = (sum(finding.level == level for finding in findings) for level in ("fail", "warn"))
    total = "all is well" if not fails + warns else f"{fails} {'fails' if fails == 1 else 'fail'}, {warns} to look at"
    return Group(Text(where, "dim"), table, Text(total, "bold"))


def as_json(findings: Sequence[Finding]) -> JsonObject:
    """`ok` tells whether none fails; each of `findings` has `check`, `level`, `said` and `advice`."""
    listed = [{"check": f.check, "level": f.level, "said": f.said, "advice": f.advice} for f in findings]
    return {"ok": is_well(findings), "findings": listed}


def is_well(findings: Sequence[Finding]) -> bool:
    """Whether nothing fails."""
    return all(finding.level != "fail" for finding in findings)
