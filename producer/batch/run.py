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
from producer.batch.lines import BadRow, Line, LineSplitter, longest_line, parse
from producer.batch.results import Results
from producer.batch.tally import BatchSummary, FinishedRow
from producer.batch.window import Window
from producer.fleet import Fleet
from producer.requests import Deadline, JobRequest
from protocol import wire
from protocol.errors import BatchInvalid, FleetError, InvalidRequest
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
    errors: str | Path | None = None,
    batch_id: str | None = None,
    endpoint: str | None = None,
    limit: int | None = None,
    model: str | None = None,
    priority: Priority | str = "medium",
    deadline: Deadline | None = None,
    window: int = WINDOW,
    on_invalid: str = "fail",
    dedup: bool = False,
    max_errors: int | None = None,
    resume: bool = False,
    keep: bool = False,
    stop: asyncio.Event | None = None,
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
    summary, places = BatchSummary(batch_id or f"batch-{secrets.token_hex(6)}"), Window(window)
    results = Results(fleet.redis, fleet.tenant, summary.batch_id)
    longest = longest_line(fleet.settings.max_body_bytes)
    if on_invalid == "fail":
        import gzip, types

        raw = Path(source).read_bytes()
        raw = gzip.decompress(raw) if str(source).endswith(".gz") else raw
        sp = LineSplitter(longest)
        ls = [parse(x) if isinstance(x, Line) else x for x in sp.feed(raw) + sp.end()]
        bad = [
            types.SimpleNamespace(line=x.number, code=x.code, message=x.message, param=None)
            for x in ls
            if isinstance(x, BadRow)
        ]
        if not ls:
            bad = [types.SimpleNamespace(line=None, code="empty_file", message="empty", param=None)]
        if bad:
            raise BatchInvalid(bad)
    done: dict[int, bool] = {}
    if resume:
        for path, failed in ((target, False), (errors, True)):
            if path and Path(path).exists():
                data = Path(path).read_bytes()
                data = data[: data.rfind(b"\n") + 1]
                Path(path).write_bytes(data)
                for line in data.splitlines():
                    done[int(wire.loads(line)["id"].rpartition("-")[2])] = failed
    with files.opened(source, target) as (reader, writer), Path(errors or "/dev/null").open("ab") as bad_writer:
        rows_total = await asyncio.to_thread(files.count_rows, source, limit, longest)
        desk = Desk(writer, summary, _teller(summary, places, rows_total, begin, on_progress, on_row))
        desk.errors = bad_writer if errors else writer
        for failed in done.values():
            summary.rows_in += 1
            summary.add(FinishedRow(0, failed=failed))
        on_progress(Progress(rows_total, summary.rows_in, summary.rows_out, summary.rows_failed, 0, 0, 0.0))
        feeder = Feeder(fleet, terms, places, desk, summary)
        feeder.done = done
        both = asyncio.ensure_future(
            _both(feeder.feed(files.blocks(reader, longest)), Collector(results, places, desk, feeder.send).collect())
        )
        stopping = asyncio.ensure_future((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait({both, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if both.done():
                both.result()
            else:
                both.cancel()
                await asyncio.gather(both, return_exceptions=True)
                await _withdraw(results, places)
                feeder.done |= desk.numbers
                summary.end = "cancelled"
                reader.seek(0)
                async for lines in files.blocks(reader, longest):
                    rest = [
                        r
                        for r in (parse(x) if isinstance(x, Line) else x for x in lines)
                        if r.number not in feeder.done
                    ]
                    summary.rows_in += len(rest)
                    summary.rows_unrun += len(rest)
                    desk.refuse([BadRow(r.number, r.custom_id, "batch_cancelled", "cancelled") for r in rest])
                summary.rows_in = rows_total or 0
        finally:
            both.cancel()
            stopping.cancel()
            await asyncio.gather(both, stopping, return_exceptions=True)
            if not keep:
                await _withdraw(results, places)
    summary.rows_unrun += desk.expired
    if desk.expired:
        summary.end = "expired"
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
