"""How a batch ends before all of its rows have: what is under way is withdrawn, and each other row has its line too.

These lines are none of the ledger's: a batch that is resumed cuts them off and goes on.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from time import time_ns

from producer.batch import rows
from producer.batch.collect import Collector
from producer.batch.ledger import Ledger
from producer.batch.output import Output
from producer.batch.publish import Numbered
from producer.batch.records import Facts, Status, Todo
from producer.batch.results import Results
from producer.batch.tally import BatchEnd
from producer.batch.window import Window
from protocol.errors import FleetError
from protocol.handle import Handle

ROWS_A_PAGE = 500
WITHDRAW_S = 5.0
"""Redis may be away: then the jobs expire."""
WHY = {
    BatchEnd.CANCELLED: ("batch_cancelled", "the batch was cancelled before the row ended"),
    BatchEnd.EXPIRED: ("batch_expired", "the batch's deadline passed before the row ended"),
    BatchEnd.FAILED: ("batch_failed", "the batch was given up before the row ended: too many rows had failed"),
}


async def withdraw(results: Results, window: Window, handles: Sequence[Handle], collector: Collector | None) -> None:
    """Cancel these jobs. The rows that had ended before are written as ever; without a collector they wait in Redis.

    Redis is waited for only so long.
    """
    with suppress(FleetError, TimeoutError):
        async with asyncio.timeout(WITHDRAW_S):
            states = await results.withdraw(handles)
            for handle, state in zip(handles, states, strict=True):
                if state is None or not state.terminal:
                    window.withdrawn.add(handle.own_id)
                    window.pending.pop(handle.own_id, None)
            if collector is not None:
                results.rewind()
                await collector.catch_up()


def ended(facts: Facts, end: BatchEnd, refused: int) -> Facts:
    """The facts of a batch that has ended like this, now; `refused`: so many rows would fail again."""
    return replace(facts, state=str(end), ended_ms=time_ns() // 1_000_000, refused=refused)


async def close(book: Ledger, output: Output, batch_id: str, end: BatchEnd) -> None:
    """Append the lines of the rows that have none.

    Raises:
        OutputFailed, BrokenPipeError: they can't be written, or nobody reads them.
    """
    after = 0
    while page := book.unfinished(after, ROWS_A_PAGE):
        after = page[-1].place
        output.append([(_line(batch_id, row, end), True) for row in page])
        # So that a second Ctrl-C is heard.
        await asyncio.sleep(0)
    output.sync()


def closing(book: Ledger, batch_id: str, end: BatchEnd) -> Iterator[Numbered]:
    """The same lines in the order of the input, each with its row's number."""
    first, left = 1, book.counts().waiting
    while left:
        for row in book.rows(range(first, first + ROWS_A_PAGE)):
            if row.status is Status.WAITING:
                left -= 1
                yield row.number, _line(batch_id, row, end)
        first += ROWS_A_PAGE


def _line(batch_id: str, row: Todo, end: BatchEnd) -> bytes:
    code, message = WHY[end]
    content = rows.refused(code, f"line {row.number}: {message}")
    return rows.line(rows.row_id(batch_id, row.number, row.generation), row.custom_id, content)
