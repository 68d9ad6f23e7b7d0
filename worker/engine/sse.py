"""Server-sent events from bytes: pure, fed with whatever pieces the network delivers."""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator

MAX_LINE_CHARS = 8 * 1024 * 1024
_ONE = re.compile(r"data: ([^\r\n]*)\n\n")


class SseError(ValueError):
    """The bytes are no event stream. The text never quotes them."""


class SseParser:
    """Follows the WHATWG rules for `data`; other fields and comments carry nothing for OpenAI streams."""

    def __init__(self, max_line_chars: int = MAX_LINE_CHARS) -> None:
        """Begin a stream; a line, and an event of several lines, may have at most `max_line_chars`."""
        self._max_line_chars = max_line_chars
        self._decode = getincrementaldecoder("utf-8-sig")().decode
        self._line: list[str] = []
        self._line_chars = 0
        self._data: list[str] = []
        self._data_chars = 0
        self._after_cr = False

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of each event that this piece completes, also of those before what is no event stream.

        Raises:
            SseError: invalid UTF-8, or a line or an event that is too long.
        """
        garbage: UnicodeDecodeError | None = None
        try:
            text = self._decode(piece)
        except UnicodeDecodeError as error:
            garbage, text = error, error.object[: error.start].decode()
        if text and self._after_cr:
            # CRLF may be split between two pieces: the line has ended with its CR.
            text, self._after_cr = text.removeprefix("\n"), False
        clean = not (garbage or self._line or self._data) and len(text) <= self._max_line_chars
        if clean and (one := _ONE.fullmatch(text)):
            # Nearly all pieces are one whole event.
            yield one[1]
            return
        self._after_cr = self._after_cr or text.endswith("\r")
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in lines:
            if (event := self._end_line(line)) is not None:
                yield event
        self._extend(rest)
        if garbage:
            msg = "the stream is not UTF-8"
            raise SseError(msg) from garbage

    def _extend(self, text: str) -> None:
        self._line_chars += len(text)
        if self._line_chars > self._max_line_chars:
            msg = f"the stream has a line of more than {self._max_line_chars} characters"
            raise SseError(msg)
        if text:
            self._line.append(text)

    def _end_line(self, text: str) -> str | None:
        """Take a line; the event's data when the line is the empty one that ends an event."""
        self._extend(text)
        line = "".join(self._line)
        self._line.clear()
        self._line_chars = 0
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._add(value.removeprefix(" "))
            return None
        if not self._data:
            return None
        event = "\n".join(self._data)
        self._data.clear()
        self._data_chars = 0
        return event

    def _add(self, text: str) -> None:
        # One more for the line's end: empty lines without an end need memory too.
        self._data_chars += len(text) + 1
        if self._data_chars > self._max_line_chars:
            raise SseError(f"the stream has an event of more than {self._max_line_chars} characters")
        self._data.append(text)
