"""Where rows end: their output lines are written, then counted."""

from collections.abc import Callable, Sequence
from typing import BinaryIO

from producer.batch import rows
from producer.batch.lines import BadRow
from producer.batch.tally import BatchSummary, FinishedRow
from protocol.errors import OutputFailed

Written = tuple[bytes, FinishedRow]


class Desk:
    """Writes output lines as rows end."""

    def __init__(
        self, writer: BinaryIO, summary: BatchSummary, on_rows: Callable[[Sequence[FinishedRow]], None]
    ) -> None:
        """`on_rows` is called after lines were written."""
        self._writer = writer
        self._summary = summary
        self._on_rows = on_rows
        self.errors = writer
        self.numbers: dict[int, bool] = {}
        self.expired = 0

    def write(self, done: Sequence[Written]) -> None:
        """Write lines, whole and flushed, and count their rows.

        Raises:
            OutputFailed: they can't be written.
            BrokenPipeError: nobody reads them any more.
        """
        if not done:
            return
        try:
            for line, row in done:
                (self.errors if row.failed else self._writer).write(line)
                self.numbers[row.number] = row.failed
                self.expired += b'"batch_expired"' in line
            self._writer.flush()
            self.errors.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(f"the output can't be written: {error.strerror}") from None
        finished = [row for _, row in done]
        for row in finished:
            self._summary.add(row)
        self._on_rows(finished)

    def refuse(self, bad: Sequence[BadRow]) -> None:
        """Write the lines of rows that get no answer."""
        self.write([(self._refusal(row), FinishedRow(row.number, failed=True)) for row in bad])

    def _refusal(self, row: BadRow) -> bytes:
        row_id = own_id(self._summary.batch_id, row.number)
        return rows.refused(row_id, row.custom_id, row.code, f"line {row.number}: {row.message}")


def own_id(batch_id: str, number: int) -> str:
    """A row's job id."""
    return f"{batch_id}-{number}"
