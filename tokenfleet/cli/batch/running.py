"""How a batch that a command runs shows itself, and how the command ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from tokenfleet.cli.batch.outages import outages_told
from tokenfleet.cli.batch.unserved import unserved_told
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.exits import Exit
from tokenfleet.cli.options import wants_json
from tokenfleet.cli.output import print_interrupted, print_json

if TYPE_CHECKING:
    from producer.batch import BatchSummary, Progress
    from producer.fleet import Fleet
    from tokenfleet.batch_progress import CheckedLines, Show


def ran(
    run: "Callable[[Fleet, Show, CheckedLines], Awaitable[BatchSummary]]", target: str, *, err: bool = False
) -> "BatchSummary":
    """What `run` returns, given a client and what to call with each news and with the lines that were checked.

    Who interrupts it and wants JSON gets the figures so far, with `err` on stderr.
    """
    last: list[Progress] = []

    async def work(fleet: "Fleet") -> "BatchSummary":
        async with shown(fleet, target, last) as told:
            return await run(fleet, *told)

    try:
        return with_fleet(work, fast=True)
    except KeyboardInterrupt:
        if not wants_json():
            raise
        print_interrupted(_so_far(last), as_json=True, err=err)
        raise click.exceptions.Exit(Exit.INTERRUPTED) from None


def _so_far(last: "list[Progress]") -> dict[str, object] | None:
    from producer.batch.tally import BatchEnd

    summary = last[0].summary if last else None
    return summary.as_json() | {"state": BatchEnd.CANCELLED} if summary else None


@asynccontextmanager
async def shown(fleet: "Fleet", target: str, last: "list[Progress]") -> "AsyncIterator[tuple[Show, CheckedLines]]":
    """What to call with each news, kept in `last`, and with lines checked; says when Redis or workers are away."""
    from rich.console import Console

    from producer.batch.outlets import STATE, Outlet
    from tokenfleet.batch_progress import CheckedLines, progress_on

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    def keep(news: "Progress") -> None:
        last[:] = [news]
        show(news)

    def say(text: str) -> None:
        console.print(text, style="yellow", soft_wrap=True)

    try:
        checked = CheckedLines(console)
        with progress_on(console, checked) as show:
            async with outages_told(fleet, say), unserved_told(fleet, say, lambda: last[0] if last else None):
                yield keep, checked
    except asyncio.CancelledError:
        done = f"{last[0].rows_out} of {last[0].rows_total} rows are done" if last else "nothing has begun"
        how = "" if last and target == "-" else "; run the same command again"
        # Files are made before the first news: then the same command alone might refuse to write over them.
        if target != "-" and (last or Outlet(Path(target)).beside(STATE).exists()):
            how = "; the same command with --resume goes on"
        console.print(f"{done}{how}", soft_wrap=True)
        raise


def end(summary: "BatchSummary", target: str, given: str = "-", errors: str | None = "-", *, err: bool = False) -> Exit:
    """Print the figures, with `err` JSON to stderr too; the exit code. `-`: a file whose name is not known."""
    from rich.console import Console

    from tokenfleet.batch_progress import advice, as_table

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if summary.was_over:
        failed = f", {summary.rows_failed} of them failed" if summary.rows_failed else ""
        console.print(f"{summary.batch_id} had completed before: {summary.rows_out} rows{failed}", soft_wrap=True)
    else:
        console.print(as_table(summary))
    if not summary.clean and target != "-":
        names = (
            quote(target),
            "IN" if given == "-" else quote(given),
            "[ERR]" if errors == "-" else errors and quote(errors),
        )
        console.print(advice(summary, *names), soft_wrap=True)
    if wants_json():
        print_json(summary.as_json(), err=err)
    return Exit.CLEAN if summary.clean else Exit.FAILED
