"""Writes a batch's files anew without the lines of rows that are to run again. Done twice, it does no harm."""

import os
from collections.abc import Iterator
from contextlib import closing

from producer.batch import rows
from producer.batch.ledger import Ledger
from producer.batch.outlets import FRESH, Outlets
from producer.batch.output import LineFile
from producer.batch.records import LinePlace, OutFile, Status
from producer.batch.resume import blocks
from protocol.errors import OutputFailed

LINES_A_BLOCK = 500


def tidy(outlets: Outlets, book: Ledger, batch_id: str) -> None:
    """Keep the lines that are the last word on their rows, and tell the ledger where they stand then.

    The files themselves say which lines they hold: a crash between the steps is mended by beginning again.

    Raises:
        OutputFailed: they can't be written.
    """
    for file, outlet in zip(OutFile, outlets.all, strict=False):
        work = outlets.work(outlet)
        if work is None:
            continue
        work = work.resolve()  # A symbolic link stays one.
        fresh = work.with_name(work.name + FRESH)
        try:
            # One that is gone altogether holds nothing: its rows run again.
            if not work.exists() and outlet.path.exists():
                outlet.unpublish(work)
            with closing(LineFile(work)) as lines, fresh.open("wb") as copy:
                copy.writelines(_kept(lines, book, batch_id))
                copy.flush()
                os.fsync(copy.fileno())
            fresh.replace(work)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise OutputFailed(f"the output can't be written: {error.strerror}") from None
        with closing(LineFile(work)) as lines:
            book.move(file, _places(lines, batch_id))


def _kept(lines: LineFile, book: Ledger, batch_id: str) -> Iterator[bytes]:
    for block in blocks(lines.lines(0), LINES_A_BLOCK):
        places = [rows.row_of(batch_id, rows.id_of(line) or "") for line in block]
        found = book.rows([place[0] for place in places if place])
        ended = {(row.number, row.generation) for row in found if row.status is not Status.WAITING}
        yield from (line for line, place in zip(block, places, strict=True) if place in ended)


def _places(lines: LineFile, batch_id: str) -> Iterator[LinePlace]:
    start = 0
    for line in lines.lines(0):
        if place := rows.row_of(batch_id, rows.id_of(line) or ""):
            yield LinePlace(place[0], start, len(line))
        start += len(line)
