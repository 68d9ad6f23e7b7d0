"""Runs a batch from file to file."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from producer import requests
from producer.batch import files
from producer.batch.collect import Collector
from producer.batch.desk import Desk
from producer.batch.feed import Feeder, Terms
from producer.batch.lines import longest_line
from producer.batch.results import Results
from producer.batch.tally import BatchSummary, FinishedRow
from producer.batch.window import Window
from producer.fleet import Fleet
from producer.requests import Deadline, JobRequest
from protocol.errors import FleetError, InvalidRequest
from protocol.states import Priority

WINDOW = 256


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a batch stands."""

    rows_total: int | None
    """None when the input can be read only once."""
    rows_in: int
    rows_out: int
    rows_failed: int
    rows_in_redis: int
    tokens_out: int
    seconds: float


def _ignore(_: object) -> None:
    """For callers who want no news."""


async def run_batch(  # noqa: PLR0913 - a batch's options
    fleet: Fleet,
    source: str | Path,
    target: str | Path,
    *,
    limit: int | None = None,
    model: str | None = None,
    priority: Priority | str = "medium",
    deadline: Deadline | None = None,
    window: int = WINDOW,
    durable: bool = False,
    on_progress: Callable[[Progress], None] = _ignore,
    on_row: Callable[[FinishedRow], None] = _ignore,
) -> BatchSummary:
    """Run each row of an OpenAI batch file; write exactly one output line for each, in the order in which they end.

    Args:
        fleet: where to.
        source: the input file; `-` is stdin, `.gz` is unpacked.
        target: the output file, which is replaced; `-` is stdout.
        limit: take only so many rows.
        model: run all rows on this model, whatever they name.
        priority: of all rows.
        deadline: of the whole batch, as of one job.
        window: how many rows are in Redis at once.
        durable: see `Fleet.submit`; for each row.
        on_progress: called whenever rows were written.
        on_row: called for each row that was written.

    Raises:
        SetupError: a file can't be opened; or `durable` is asked of a Redis that cannot tell when a write is safe.
        OutputFailed, BrokenPipeError: the output can't be written, or nobody reads it any more; rows are withdrawn.
        InvalidRequest, NotAllowed: an option breaks a rule; the Redis user lacks a right.
    """
    begin = asyncio.get_running_loop().time()
    terms = replace(_terms(model, priority, deadline, limit, begin), durable=durable)
    summary, places = BatchSummary(f"batch-{secrets.token_hex(6)}"), Window(window)
    results = Results(fleet.redis, fleet.tenant, summary.batch_id)
    with files.opened(source, target) as (reader, writer):
        longest = longest_line(fleet.settings.max_body_bytes)
        rows_total = await asyncio.to_thread(files.count_rows, source, limit, longest)
        desk = Desk(writer, summary, _teller(summary, places, rows_total, begin, on_progress, on_row))
        feeder = Feeder(fleet, terms, places, desk, summary)
        try:
            collector = Collector(results, places, desk, feeder.send)
            await _both(feeder.feed(files.blocks(reader, longest)), collector.collect())
        finally:
            await _withdraw(results, places)
    summary.seconds = asyncio.get_running_loop().time() - begin
    return summary


def _terms(
    model: str | None, priority: Priority | str, deadline: Deadline | None, limit: int | None, begin: float
) -> Terms:
    if limit is not None and limit < 0:
        raise InvalidRequest("limit: it must not be negative")
    ends_at = None if deadline is None else begin + requests.deadline_s(deadline, datetime.now(UTC))
    return Terms(model or "", requests.priority_of(JobRequest(priority=priority)), ends_at, limit)


def _teller(
    summary: BatchSummary,
    places: Window,
    rows_total: int | None,
    begin: float,
    on_progress: Callable[[Progress], None],
    on_row: Callable[[FinishedRow], None],
) -> Callable[[Sequence[FinishedRow]], None]:
    """What the desk calls after it has written rows."""

    def tell(finished: Sequence[FinishedRow]) -> None:
        summary.seconds = asyncio.get_running_loop().time() - begin
        counts = (summary.rows_in, summary.rows_out, summary.rows_failed, len(places.pending))
        for row in finished:
            on_row(row)
        on_progress(Progress(rows_total, *counts, summary.tokens_out, summary.seconds))

    return tell


async def _both(feeding: Coroutine[None, None, None], collecting: Coroutine[None, None, None]) -> None:
    """Until both have ended, or one has failed."""
    tasks = [asyncio.create_task(feeding), asyncio.create_task(collecting)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _withdraw(results: Results, places: Window) -> None:
    """A batch that is broken off leaves no work behind."""
    handles = [row.handle for row in places.pending.values() if row.handle]
    if handles:
        with suppress(FleetError):
            await results.withdraw(handles)
