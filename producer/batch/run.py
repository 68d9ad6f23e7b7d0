"""Runs a batch from file to file."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from producer.batch.begin import begin
from producer.batch.course import Course
from producer.batch.intake import MOST_PROBLEMS
from producer.batch.ledger import Ledger
from producer.batch.options import WINDOW, BatchOptions, OnInvalid, Order
from producer.batch.outlets import Outlet, Outlets
from producer.batch.output import STANDARD
from producer.batch.progress import Progress
from producer.batch.tally import BatchSummary, FinishedRow
from producer.fleet import Fleet
from producer.requests import Deadline
from protocol.errors import Problem
from protocol.messages import Endpoint
from protocol.states import Priority

OnBad = Callable[[Sequence[Problem], int], None]
"""Given the lines that are skipped as no requests, 1,000 at most, and how many there are."""


def ignore(_: object) -> None:
    """For callers who want no news."""


def ignore_bad(_: Sequence[Problem], __: int) -> None:
    """Likewise."""


async def run_batch(  # noqa: PLR0913, D417 - a batch's options, explained where they are checked
    fleet: Fleet,
    source: str | Path,
    target: str | Path,
    *,
    errors: str | Path | None = None,
    batch_id: str = "",
    limit: int | None = None,
    model: str | None = None,
    models: Sequence[str] = (),
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
    on_lines: Callable[[int], None] = ignore,
    on_bad: OnBad = ignore_bad,
    on_progress: Callable[[Progress], None] = ignore,
    on_row: Callable[[FinishedRow], None] = ignore,
) -> BatchSummary:
    """Run each row of an OpenAI batch file; in every end there is exactly one output line for each.

    Args:
        source, target, errors: `-` is stdin or stdout, `.gz` is packed; without `errors` all lines go to `target`.
        batch_id … keep: see `BatchOptions`; the batch's state stands beside the target.
        cancel: once it is set, the batch ends as cancelled, as when its task is; `resume` goes on, as after a crash.
        on_lines, on_bad: told in a thread how many lines of the input were checked; told of skipped lines.
        on_progress, on_row: told at the start and whenever rows were written; of each row.

    Raises:
        BatchInvalid, InputChanged, SetupError: bad lines; the input has changed; a file can't be used, or is there.
        OutputFailed, BrokenPipeError: the output can't be written, or nobody reads it any more; rows are withdrawn.
        InvalidRequest, UnknownModel, NotAllowed: a rule is broken; nobody serves it; the Redis user lacks a right.
    """
    options = BatchOptions.of(locals())
    with _outlets(target, errors, options.order) as outlets:
        book, resumed = await begin(fleet, str(_whole(source)), outlets, options, cancel, on_lines)
        with book:
            _tell_bad(book, ignore_bad if resumed else on_bad)
            course = await Course.open(fleet, outlets, options, book, resumed=resumed)
            return await course.run(cancel, on_progress, on_row)


@contextmanager
def _outlets(target: str | Path, errors: str | Path | None, order: Order) -> Iterator[Outlets]:
    with tempfile.TemporaryDirectory(prefix="tokenfleet-batch-") as scratch:
        yield outlets_of(target, errors, order, Path(scratch))


def _tell_bad(book: Ledger, on_bad: OnBad) -> None:
    if bad := book.facts().bad:
        on_bad(book.problems(0, MOST_PROBLEMS), bad)


def outlets_of(target: str | Path, errors: str | Path | None, order: object, scratch: Path) -> Outlets:
    """The batch's files, found from any folder."""
    err = None if errors is None else Outlet(_whole(errors))
    return Outlets(Outlet(_whole(target)), err, order == "input", scratch)


def _whole(path: str | Path) -> Path:
    """The same file from any folder; a symbolic link stays one."""
    return Path(path) if str(path) == STANDARD else Path(path).absolute()
