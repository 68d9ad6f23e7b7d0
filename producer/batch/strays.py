"""Rows that end without running: lines of the input that are no requests, and twins that a crash has left behind."""

from collections.abc import Iterator

from producer.batch import rows
from producer.batch.desk import Desk, as_twin
from producer.batch.ledger import Ledger
from producer.batch.output import LineFile, Output
from producer.batch.records import Status, Todo
from producer.batch.tally import FinishedRow

ROWS_A_PAGE = 500


def refuse_bad(book: Ledger, desk: Desk) -> Iterator[None]:
    """Write the error line of each row that can't be run; yields after each page."""
    after = 0
    while page := book.problems(after, ROWS_A_PAGE):
        after = page[-1].line
        why = {problem.line: problem for problem in page}
        waiting = [row for row in book.rows(why) if row.bad and row.status is Status.WAITING]
        refusals = [(row, why[row.number]) for row in waiting]
        desk.write(
            [
                (
                    row,
                    rows.refused(problem.code, f"line {row.number}: {problem.message}"),
                    FinishedRow(row.number, failed=True, bad=True),
                )
                for row, problem in refusals
            ]
        )
        yield


def answer_stranded(book: Ledger, output: Output, desk: Desk) -> Iterator[None]:
    """Give twins the answer that their original has: a crash came between the two; yields after each page."""
    after = 0
    while page := book.stranded(after, ROWS_A_PAGE):
        after = page[-1].place
        contents = _contents(book, output, {row.twin_of for row in page if row.twin_of})
        desk.write([(row, content, finished) for row in page for content, finished in _answer(row, contents)])
        yield


def _answer(row: Todo, contents: dict[int, rows.ReadLine]) -> Iterator[tuple[bytes, FinishedRow]]:
    line = contents[row.twin_of or 0]
    finished = FinishedRow(row.number, line.failed, tokens_in=line.tokens_in, tokens_out=line.tokens_out)
    yield line.content, as_twin(finished, row.number)


def _contents(book: Ledger, output: Output, originals: set[int]) -> dict[int, rows.ReadLine]:
    found = {}
    for file, place in book.written(originals):
        lines = output.files[file]
        line = rows.read(lines.read(place.start, place.length)) if isinstance(lines, LineFile) else None
        if line:
            found[place.number] = line
    return found
