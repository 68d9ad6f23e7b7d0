"""Runs a batch from file to file."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from producer.batch.begin import begin
from producer.batch.course import Course
from producer.batch.options import WINDOW, BatchOptions, OnInvalid, Order
from producer.batch.outlets import Outlet, Outlets
from producer.batch.output import STANDARD
from producer.batch.progress import Progress
from producer.batch.tally import BatchSummary, FinishedRow
from producer.fleet import Fleet
from producer.requests import Deadline
from protocol.messages import Endpoint
from protocol.states import Priority


def ignore(_: object) -> None:
    """For callers who want no news."""


async def run_batch(  # noqa: PLR0913, D417 - a batch's options, explained where they are checked
    fleet: Fleet,
    source: str | Path,
    target: str | Path,
    *,
    errors: str | Path | None = None,
    batch_id: str = "",
    limit: int | None = None,
    model: str | None = None,
    endpoint: Endpoint | None = None,
    priority: Priority | str = "medium",
    deadline: Deadline | None = None,
    window: int = WINDOW,
    order: Order = "completion",
    on_invalid: OnInvalid = "fail",
    dedup: bool = False,
    max_errors: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    durable: bool = False,
    stream: bool = False,
    keep: bool = False,
    cancel: asyncio.Event | None = None,
    on_progress: Callable[[Progress], None] = ignore,
    on_row: Callable[[FinishedRow], None] = ignore,
) -> BatchSummary:
    """Run each row of an OpenAI batch file; in every end there is exactly one output line for each.

    A task that is cancelled withdraws the rows that are under way and closes the files as those of a batch that was
    cancelled; `resume` goes on with it, as after a crash or any other end.

    Args:
        fleet: where to.
        source: the input file; `-` is stdin, `.gz` is unpacked.
        target: the output file; `-` is stdout, `.gz` is packed. Its state stands beside it.
        errors: where the lines of failed rows go; None: to `target` too.
        batch_id, limit, model, endpoint, priority, deadline, window, order: see `BatchOptions`.
        on_invalid, dedup, max_errors, resume, overwrite, durable, stream, keep: see `BatchOptions`.
        cancel: once it is set, the batch ends as cancelled.
        on_progress: called once the input is validated, then whenever rows were written.
        on_row: called for each row that was written.

    Raises:
        BatchInvalid: lines of the input are no requests, and were not to be skipped; nothing was run.
        SetupError: a file can't be opened or is there already, or `durable` is asked of a Redis that can't tell.
        InputChanged: the input is not what it was when the batch began.
        OutputFailed, BrokenPipeError: the output can't be written, or nobody reads it any more; rows are withdrawn.
        InvalidRequest, NotAllowed: an option breaks a rule; the Redis user lacks a right.
    """
    given = locals()
    options = BatchOptions(**{name: given[name] for name in BatchOptions.__dataclass_fields__} | {"model": model or ""})
    options.check()
    with tempfile.TemporaryDirectory(prefix="tokenfleet-batch-") as scratch:
        err = None if errors is None else Outlet(_whole(errors))
        outlets = Outlets(Outlet(_whole(target)), err, options.order == "input", Path(scratch))
        book, resumed = await begin(fleet, str(_whole(source)), outlets, options)
        with book:
            course = await Course.open(fleet, outlets, options, book, resumed=resumed)
            return await course.run(cancel, on_progress, on_row)


def _whole(path: str | Path) -> Path:
    """The same file from any folder; a symbolic link stays one."""
    return Path(path) if str(path) == STANDARD else Path(path).absolute()
