"""Server-sent events from bytes: pure, fed with whatever pieces the network delivers."""

import re
from collections.abc import Iterable, Iterator

MAX_LINE_BYTES = 8 * 1024 * 1024
_ONE = re.compile(rb"data: ([^\r\n]*)\n\n")
_BOM = b"\xef\xbb\xbf"


class SseError(ValueError):
    """The bytes are no event stream. The text never quotes them."""


class SseParser:
    """Follows the WHATWG rules for `data`; other fields and comments carry nothing for OpenAI streams.

    What it finds is bytes still: whoever reads them as JSON learns whether they are UTF-8.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        """Begin a stream; a line, and an event of several lines, may have at most `max_line_bytes`."""
        self._max_line_bytes = max_line_bytes
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._after_cr = False
        self._begun = False

    def feed(self, piece: bytes) -> Iterable[bytes]:
        """The data of each event that this piece completes, also of those before what is no event stream.

        Raises:
            SseError: a line or an event that is too long, once the data before it are read.
        """
        clean = not (self._line or self._data or self._after_cr) and len(piece) <= self._max_line_bytes
        if clean and (one := _ONE.fullmatch(piece)):
            # Nearly all pieces are one whole event.
            self._begun = True
            return (one[1],)
        return self._events(piece)

    def _events(self, piece: bytes) -> Iterator[bytes]:
        if piece and self._after_cr:
            # CRLF may be split between two pieces: the line has ended with its CR.
            piece, self._after_cr = piece.removeprefix(b"\n"), False
        self._after_cr = self._after_cr or piece.endswith(b"\r")
        *lines, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if (event := self._end_line(line)) is not None:
                yield event
        self._extend(rest)

    def _extend(self, part: bytes) -> None:
        self._line_bytes += len(part)
        if self._line_bytes > self._max_line_bytes:
            msg = f"the stream has a line of more than {self._max_line_bytes} bytes"
            raise SseError(msg)
        if part:
            self._line.append(part)

    def _end_line(self, part: bytes) -> bytes | None:
        """Take a line; the event's data when the line is the empty one that ends an event."""
        self._extend(part)
        line = b"".join(self._line)
        self._line.clear()
        self._line_bytes = 0
        if not self._begun:
            line, self._begun = line.removeprefix(_BOM), True
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._add(value.removeprefix(b" "))
            return None
        if not self._data:
            return None
        event = b"\n".join(self._data)
        self._data.clear()
        self._data_bytes = 0
        return event

    def _add(self, part: bytes) -> None:
        # One more for the line's end: empty lines without an end need memory too.
        self._data_bytes += len(part) + 1
        if self._data_bytes > self._max_line_bytes:
            raise SseError(f"the stream has an event of more than {self._max_line_bytes} bytes")
        self._data.append(part)
