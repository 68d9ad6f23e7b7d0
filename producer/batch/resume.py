"""Goes on with a batch that broke off: what was written is taken over, what was torn is cut off."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from producer.batch import rows
from producer.batch.ledger import Ledger
from producer.batch.output import LineFile
from producer.batch.records import Facts, LinePlace, OutFile, Status, Todo, WrittenLine
from producer.batch.tally import BatchEnd, BatchSummary
from protocol.errors import SetupError

LINES_A_BLOCK = 500
RUNNING = "running"
TIDYING = "tidying"
"""States of a batch that has not ended; the second: its files are written anew, and only they know what they hold."""
ANEW = "Or begin anew: --overwrite (overwrite=True)."
MORE_ROWS = f"Go on with the same limit. For more rows, run the whole input to another output. {ANEW}"
ENDS = frozenset(BatchEnd) - {BatchEnd.COMPLETED}
T = TypeVar("T")


def check_judged(facts: Facts) -> None:
    """Raises where rows may be no requests, and nobody knows.

    Raises:
        SetupError: they may.
    """
    if not facts.judged:
        raise SetupError(
            "the batch was cancelled before its input was validated", "Begin anew: --overwrite (overwrite=True)."
        )


def check_options(facts: Facts, now: Mapping[str, Any]) -> None:
    """Raises where options differ that can't change any more.

    Raises:
        SetupError: they do.
    """
    for name, value in now.items():
        before = facts.options.get(name)
        if before != value:
            what = f"{name} {_said(before, 'was')} and {_said(value, 'is')} now"
            hint = MORE_ROWS if name == "limit" else f"Go on as it began. {ANEW}"
            raise SetupError(f"the batch can't be resumed with other options: {what}", hint)


def _said(value: object, verb: str) -> str:
    return (
        f"{verb} not given" if value in (None, "", False) else f"{verb} given" if value is True else f"{verb} {value}"
    )


def recount(summary: BatchSummary, book: Ledger) -> None:
    """Go on counting where earlier runs stopped; cached tokens and whole times are not kept, and stay this run's."""
    counts = book.counts()
    summary.rows_out = summary.rows_before = counts.answered + counts.failed
    summary.rows_failed, summary.rows_deduped = counts.failed, counts.deduped
    summary.tokens_in = counts.tokens_in
    summary.tokens_out = summary.tokens_before = counts.tokens_out
    summary.jobs_by_worker.update(book.jobs_by_worker())
    for ms, times in book.waits("queue_ms"):
        summary.queue_ms.add(ms, times)
    for ms, times in book.waits("ttft_ms"):
        summary.ttft_ms.add(ms, times)


def repair(book: Ledger, file: OutFile, lines: LineFile, facts: Facts) -> None:
    """Make a file and the ledger agree on what stands there.

    A file that is shorter than the ledger knows has lost its end: those rows wait again. Whole lines behind what the
    ledger knows are rows that ended in the last moment; what is torn is cut off, and so are the lines with which a
    batch was closed before all of its rows had ended.

    Raises:
        SetupError: somebody else has changed the file: lines do not stand where they were written.
    """
    last = book.last_line(file, lines.size)
    if last and not _stands(lines, facts.batch_id, *last):
        raise SetupError("the output is not what the batch has written", "Restore it, or begin anew: --overwrite.")
    book.cut(file, lines.size)
    end = book.last_place(file)
    if facts.state not in ENDS:
        for block in blocks(lines.lines(end), LINES_A_BLOCK):
            taken = list(_adopted(book, file, block, facts.batch_id, end))
            book.done(taken)
            end += sum(line.length for line in taken)
            if len(taken) < len(block):
                break
    if end < lines.size:
        lines.cut(end)


def _stands(lines: LineFile, batch_id: str, row: Todo, place: LinePlace) -> bool:
    data = lines.read(place.start, place.length)
    return data.endswith(b"\n") and rows.id_of(data) == rows.row_id(batch_id, row.number, row.generation)


def _adopted(book: Ledger, file: OutFile, block: list[bytes], batch_id: str, start: int) -> Iterator[WrittenLine]:
    """Up to the first line that is not ours, or whose row has one."""
    read = [rows.read(line) for line in block]
    places = [rows.row_of(batch_id, line.own_id) if line else None for line in read]
    known: dict[tuple[int, int], Todo] = {
        (row.number, row.generation): row
        for row in book.rows([place[0] for place in places if place])
        if row.status is Status.WAITING
    }
    for data, line, place in zip(block, read, places, strict=True):
        if line is None or place is None or known.pop(place, None) is None:
            return
        yield WrittenLine(
            number=place[0],
            failed=line.failed,
            file=file,
            start=start,
            length=len(data),
            tokens_in=line.tokens_in,
            tokens_out=line.tokens_out,
        )
        start += len(data)


def blocks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in their order, so many at a time."""
    left = iter(items)
    while block := list(islice(left, size)):
        yield block
