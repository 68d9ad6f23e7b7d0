"""How a batch file is refused: every bad line in one pass."""

from collections.abc import Sequence

import click

from protocol.errors import BatchInvalid, Problem, UnknownModel
from tokenfleet.cli.exits import Exit
from tokenfleet.cli.options import wants_json
from tokenfleet.cli.output import print_json
from tokenfleet.terminal import harmless

MOST_LINES = 100
UNSERVED = "Start a worker for that model, or run all rows on one that is known: --model NAME."


def refused(source: str, error: BatchInvalid, *, err: bool = False) -> Exit:
    """Tell what is wrong with each line: `file:line: code: message` on stderr, or one JSON object; the exit code.

    With `err` JSON goes to stderr too.
    """
    hint = UNSERVED if any(problem.code == UnknownModel.code for problem in error.problems) else error.hint
    if wants_json():
        names = ("line", "code", "message", "param")
        problems = [{name: getattr(problem, name) for name in names} for problem in error.problems]
        said = {"code": error.code, "message": error.message, "hint": hint, "total": error.total}
        print_json({"error": {**said, "problems": problems}}, err=err)
        return Exit.INVALID
    told(source, error.problems, error.total)
    click.echo(f"{click.style('error:', fg='red', bold=True)} {error.message}", err=True)
    if hint:
        click.echo(hint, err=True)
    return Exit.INVALID


def told(source: str, problems: Sequence[Problem], total: int) -> None:
    """Name bad lines on stderr, the first hundred; `total`: so many there are."""
    # A model that nobody serves, often that of --model, is one mistake and not one of each line.
    same = {problem.message if problem.code == UnknownModel.code else "" for problem in problems}
    shown = 1 if len(same) == 1 and "" not in same else MOST_LINES
    for problem in problems[:shown]:
        click.echo(harmless(f"{source}:{problem.line}: {problem.code}: {problem.message}"), err=True)
    if total > shown:
        click.echo(f"… and {total - shown} more: `tokenfleet batch validate` tells all", err=True)
