"""Reads batch files: bytes to lines, lines to rows. Pure: no files, no Redis."""

import re
from dataclasses import dataclass
from typing import get_args

from protocol import wire
from protocol.errors import InvalidRequest
from protocol.messages import Endpoint
from protocol.wire import JsonObject

_BOM = b"\xef\xbb\xbf"
_AROUND_BYTES = 64 * 1024
_PLACE = re.compile(r": line 1 column ([0-9]+) \(char [0-9]+\)$")
_SURROGATE = re.compile(r"(no|invalid) (low|high) surrogate in string")
_ENDPOINTS: tuple[Endpoint, ...] = get_args(Endpoint)


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank; `number` counts all lines of the file from 1, `start` its bytes before the data."""

    number: int
    data: bytes
    start: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a batch."""

    number: int
    custom_id: str
    endpoint: Endpoint
    body: JsonObject


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that is no request of a batch, and why; the message never holds its text."""

    number: int
    custom_id: str | None
    code: str
    message: str
    param: str | None = None
    """The field that is wrong."""


class _Fault(Exception):
    """What is wrong with a row: its code, field and rule."""

    def __init__(self, param: str, rule: str, code: str = InvalidRequest.code) -> None:
        super().__init__(f"{param}: {rule}")
        self.param = param
        self.code = code


def longest_line(max_body_bytes: int) -> int:
    """Bytes of a row whose body is as large as it may be: one character may be written as six, an escape."""
    return 6 * max_body_bytes + _AROUND_BYTES


class LineSplitter:
    """Splits bytes, as they come, at the newline byte only: U+2028 and its like inside a text are data.

    A line of over `max_bytes` is never held, however long it is: it comes as a bad row.
    """

    def __init__(self, max_bytes: int) -> None:
        """Begin at line 1."""
        self._max_bytes = max_bytes
        self._rest: list[bytes] = []
        self._held = self._number = self._start = 0

    def feed(self, data: bytes) -> list[Line | BadRow]:
        """The lines that `data` completes."""
        first, last = data.find(b"\n") + 1, data.rfind(b"\n") + 1
        if last - first <= self._max_bytes and data[first:last].isspace():
            # Nothing but blank lines between them: packed, a few MB are billions of these.
            self._hold(data[: first - 1])
            lines = self._line()
            self._number += data.count(b"\n", first, last)
            self._start += last - first
            self._hold(data[last:])
            return lines
        *whole, rest = data.split(b"\n")
        lines = []
        for part in whole:
            self._hold(part)
            lines += self._line()
        self._hold(rest)
        return lines

    def end(self) -> list[Line | BadRow]:
        """The last line, when it has no newline."""
        return self._line() if self._held else []

    def unreadable(self, why: str) -> BadRow:
        """Stands for the line at which reading came to its end too early."""
        return BadRow(self._number + 1, None, "unreadable_input", f"the input can't be read on: {why}")

    def _hold(self, part: bytes) -> None:
        self._held += len(part)
        if self._held > self._max_bytes:
            self._rest.clear()
        elif part:
            self._rest.append(part)

    def _line(self) -> list[Line | BadRow]:
        data, held, start = b"".join(self._rest), self._held, self._start
        self._rest, self._held = [], 0
        self._number += 1
        self._start += held + 1
        if held > self._max_bytes:
            message = f"the line has {held} bytes; the limit is {self._max_bytes}"
            return [BadRow(self._number, None, "too_large", message)]
        if self._number == 1 and data.startswith(_BOM):
            data, start = data.removeprefix(_BOM), len(_BOM)
        data = data.removesuffix(b"\r")
        return [Line(self._number, data, start)] if data.strip() else []


def parse(line: Line, *, wide_integers: bool = False) -> Row | BadRow:
    """Read one line; its body is not checked. `wide_integers`: integers of over 64 bits are read too, as floats."""
    if line.data.startswith(_BOM):
        # Only the file's own is skipped. Rows are read by their places later, and as strictly as any JSON.
        message = "not valid JSON: a byte order mark, as where a file was appended to another"
        return BadRow(line.number, None, "invalid_json_line", message)
    try:
        line.data.decode()
        # One level more than a body may have: the row is around it.
        data = wire.loads_of_user(line.data, wire.MAX_NESTING + 1, wide_integers=wide_integers)
    except UnicodeDecodeError as error:
        return BadRow(line.number, None, "invalid_json_line", f"not UTF-8 at byte {error.start} of the line")
    except InvalidRequest as error:
        return BadRow(line.number, known_id(line.data), "invalid_json_line", _in_line(error.message))
    if not isinstance(data, dict):
        return BadRow(line.number, None, "invalid_json_line", "the line is no JSON object")
    try:
        return Row(line.number, _custom_id(data), _endpoint(data), _body(data))
    except _Fault as fault:
        return BadRow(line.number, known_id(line.data), fault.code, str(fault), fault.param)


def _in_line(message: str) -> str:
    """The reader's words, without the number that it gives the one line that it sees, and plainer for surrogates."""
    return _SURROGATE.sub("a lone surrogate in a text", _PLACE.sub(r" at character \1 of the line", message))


def known_id(data: bytes) -> str | None:
    """The id of a row, where one can be read, whatever else is wrong with it."""
    try:
        row = wire.loads(data)
    except InvalidRequest:
        return None
    custom_id = row.get("custom_id") if isinstance(row, dict) else None
    return custom_id if isinstance(custom_id, str) else None


def _custom_id(data: JsonObject) -> str:
    custom_id = data.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        raise _Fault("custom_id", "a text is required")
    return custom_id


def _endpoint(data: JsonObject) -> Endpoint:
    if data.get("method") != "POST":
        raise _Fault("method", "it must be POST")
    url = data.get("url")
    for endpoint in _ENDPOINTS:
        if url == endpoint:
            return endpoint
    code = "url_mismatch" if isinstance(url, str) else InvalidRequest.code
    raise _Fault("url", f"it must be one of {', '.join(_ENDPOINTS)}", code)


def _body(data: JsonObject) -> JsonObject:
    body = data.get("body")
    if not isinstance(body, dict):
        raise _Fault("body", "an object is required")
    if body.get("stream"):
        raise _Fault("body.stream", "batches are not streamed")
    return body
