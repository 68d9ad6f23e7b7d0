"""Where rows end: their lines are written, then kept in the ledger, then counted."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from producer.batch import rows
from producer.batch.ledger import Ledger
from producer.batch.output import Output
from producer.batch.records import Todo, WrittenLine
from producer.batch.tally import BatchSummary, FinishedRow
from protocol import failpoints

Done = tuple[Todo, bytes, FinishedRow]
"""A row, what its line says, and what is counted of it."""
SYNC_S = 1.0
TWINS_A_PAGE = 500


class Desk:
    """Writes output lines as rows end."""

    def __init__(
        self,
        output: Output,
        book: Ledger,
        summary: BatchSummary,
        on_rows: Callable[[Sequence[FinishedRow]], None],
        *,
        dedup: bool,
    ) -> None:
        """`on_rows` is called after lines were written; `dedup`: rows may have twins, which get their answer too."""
        self._output, self._book, self._summary, self._on_rows = output, book, summary, on_rows
        self._owing: deque[_Owing] | None = deque() if dedup else None
        self._synced_at = time.monotonic()

    def write(self, done: Sequence[Done]) -> None:
        """Write the rows' lines, keep where they stand, and count them; their twins wait for `answer_twins`.

        Nothing else runs between the two: a task that is cancelled leaves no line that the ledger does not know.

        Raises:
            OutputFailed: they can't be written.
            BrokenPipeError: nobody reads them any more.
        """
        self._write(done)
        if self._owing is not None:
            self._owing.extend(_Owing(*one) for one in done if one[0].twin_of is None and not one[0].bad)

    async def answer_twins(self) -> None:
        """Give the twins of all rows that were written their answer: page by page, for a row may have a million.

        Others run between the pages; what a crash or a stop leaves is found again as stranded. Raises as `write`.
        """
        while self._owing:
            one = self._owing[0]
            if twins := self._book.twins(one.row.number, one.after, TWINS_A_PAGE):
                self._write([(twin, one.content, as_twin(one.finished, twin.number)) for twin in twins])
                one.after = twins[-1].place
                await asyncio.sleep(0)
            else:
                self._owing.popleft()

    def refuse(self, row: Todo, code: str, message: str, *, for_good: bool) -> None:
        """Write the line of a row that gets no answer; `for_good`: nor would it if it were submitted again."""
        finished = FinishedRow(row.number, failed=True, refused=for_good)
        self.write([(row, rows.refused(code, f"line {row.number}: {message}"), finished)])

    def _write(self, done: Sequence[Done]) -> None:
        if not done:
            return
        lines = [(self.line_of(row, content), finished.failed) for row, content, finished in done]
        places = self._output.append(lines)
        failpoints.reach("producer.before_commit")
        if time.monotonic() - self._synced_at >= SYNC_S:
            self._output.sync()
            self._synced_at = time.monotonic()
        self._book.done(
            [
                WrittenLine(
                    number=finished.number,
                    failed=finished.failed,
                    file=file,
                    start=start,
                    length=len(line),
                    tokens_in=0 if finished.deduped else finished.tokens_in,
                    tokens_out=0 if finished.deduped else finished.tokens_out,
                    queue_ms=finished.queue_ms,
                    ttft_ms=finished.ttft_ms,
                    worker=finished.worker,
                )
                for (_, _, finished), (line, _), (file, start) in zip(done, lines, places, strict=True)
            ]
        )
        failpoints.reach("producer.after_commit")
        for _, _, finished in done:
            self._summary.add(finished)
        self._on_rows([finished for _, _, finished in done])

    def line_of(self, row: Todo, content: bytes) -> bytes:
        """A row's whole line."""
        own_id = rows.row_id(self._summary.batch_id, row.number, row.generation)
        return rows.line(own_id, row.custom_id, content)


@dataclass(slots=True)
class _Owing:
    """A row that was written, and whose twins have their answer up to the place `after`."""

    row: Todo
    content: bytes
    finished: FinishedRow
    after: int = 0


def as_twin(finished: FinishedRow, number: int) -> FinishedRow:
    """What is counted of a row that gets another one's answer: it waited for nothing and ran nowhere."""
    return replace(
        finished, number=number, deduped=True, worker="", queue_ms=None, ttft_ms=None, total_ms=None, tokens_cached=0
    )
