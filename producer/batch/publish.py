"""The end of an output that lines could not simply be appended to: in the input's order, packed, or both."""

import heapq
from collections.abc import Iterable, Iterator

from producer.batch.ledger import Ledger
from producer.batch.outlets import Outlets
from producer.batch.output import LineFile, Output
from producer.batch.records import OutFile

Numbered = tuple[int, bytes]


def publish(outlets: Outlets, output: Output, book: Ledger, closing: Iterable[Numbered]) -> None:
    """Write each output anew whose lines were appended to another file; `closing` are lines of rows without one.

    Args:
        outlets: the batch's files.
        output: the open ones.
        book: where the lines stand.
        closing: by number; empty where they were appended too.

    Raises:
        OutputFailed: one can't be written.
        BrokenPipeError: nobody reads it any more.
    """
    for file, lines in output.files.items():
        outlet = outlets.all[file]
        if isinstance(lines, LineFile) and outlets.work(outlet) != outlet.path:
            more = closing if file is output.file_of(failed=True) else ()
            outlet.publish(_by_number(book, file, lines, more) if outlets.ordered else lines.lines(0))


def _by_number(book: Ledger, file: OutFile, lines: LineFile, more: Iterable[Numbered]) -> Iterator[bytes]:
    written = ((place.number, lines.read(place.start, place.length)) for place in book.places(file, "input"))
    return (line for _, line in heapq.merge(written, more, key=lambda pair: pair[0]))
