"""Runs the failed rows of a batch again, in place of their old lines."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from producer.batch.course import Course
from producer.batch.ledger import Ledger
from producer.batch.options import WINDOW, BatchOptions
from producer.batch.outlets import STATE, Outlet
from producer.batch.progress import Progress
from producer.batch.records import Facts
from producer.batch.resume import RUNNING, TIDYING, check_judged
from producer.batch.run import ignore, outlets_of
from producer.batch.source import check_unchanged
from producer.batch.tally import BatchSummary, FinishedRow
from producer.batch.threads import in_thread
from producer.fleet import Fleet
from producer.requests import Deadline
from protocol.errors import SetupError
from protocol.states import Priority


async def retry_failed(  # noqa: PLR0913, D417 - a batch's options, as in run_batch
    fleet: Fleet,
    target: str | Path,
    *,
    priority: Priority | str = "medium",
    deadline: Deadline | None = None,
    window: int = WINDOW,
    max_errors: int | None = None,
    durable: bool = False,
    cancel: asyncio.Event | None = None,
    on_progress: Callable[[Progress], None] = ignore,
    on_row: Callable[[FinishedRow], None] = ignore,
) -> BatchSummary:
    """Run the failed rows of an ended batch again, and those that never ended; lines that are no requests stay failed.

    Args:
        fleet: where to.
        target: the batch's output; all else is known from its state.
        deadline: a new one; None: there is none.
        priority, window, max_errors, durable, cancel, on_progress, on_row: as for `run_batch`.

    Raises:
        SetupError: there is no such batch, or it has not ended; or another error of `run_batch`.
    """
    options = BatchOptions(
        priority=priority, deadline=deadline, window=window, max_errors=max_errors, durable=durable, resume=True
    )
    options.check()
    out = Outlet(Path(target))
    with tempfile.TemporaryDirectory(prefix="tokenfleet-batch-") as scratch, Ledger.open(out.beside(STATE)) as book:
        facts = book.facts()
        if facts.state == RUNNING:
            raise SetupError("the batch has not ended", "First let it end: the same run with --resume (resume=True).")
        check_judged(facts)
        check_unchanged(facts, facts.source)
        outlets = outlets_of(target, facts.options["errors"], facts.options["order"], Path(scratch))
        options = replace(options, dedup=facts.options["dedup"])
        await in_thread(lambda: _take_back(book, facts, options))
        course = await Course.open(fleet, outlets, options, book, resumed=True)
        return await course.run(cancel, on_progress, on_row)


def _take_back(book: Ledger, facts: Facts, options: BatchOptions) -> None:
    counts = book.counts()
    if counts.failed > facts.bad or counts.waiting:
        # First: whoever finds the state like this looks at the files, and not at where the ledger thinks lines stand.
        book.set_facts(replace(facts, state=TIDYING, deadline_ms=options.deadline_ms(), refused=0, ended_ms=None))
        book.retry_failed()
