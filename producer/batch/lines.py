"""Reads batch files: bytes to lines, lines to rows. Pure: no files, no Redis."""

from dataclasses import dataclass
from typing import get_args

from protocol import wire
from protocol.errors import InvalidRequest
from protocol.messages import Endpoint
from protocol.wire import JsonObject

_BOM = b"\xef\xbb\xbf"
_ENDPOINTS: tuple[Endpoint, ...] = get_args(Endpoint)


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank; `number` counts all lines of the file from 1."""

    number: int
    data: bytes


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


class LineSplitter:
    """Splits bytes, as they come, at the newline byte only: U+2028 and its like inside a text are data."""

    def __init__(self) -> None:
        """Begin at line 1."""
        self._rest: list[bytes] = []
        self._number = 0

    def feed(self, data: bytes) -> list[Line]:
        """The lines that `data` completes."""
        *whole, rest = data.split(b"\n")
        if not whole:
            self._rest.append(rest)
            return []
        whole[0] = b"".join([*self._rest, whole[0]])
        self._rest = [rest]
        return self._lines(whole)

    def end(self) -> list[Line]:
        """The last line, when it has no newline."""
        rest, self._rest = b"".join(self._rest), []
        return self._lines([rest]) if rest else []

    def _lines(self, parts: list[bytes]) -> list[Line]:
        lines = []
        for part in parts:
            self._number += 1
            data = (part.removeprefix(_BOM) if self._number == 1 else part).removesuffix(b"\r")
            if data.strip():
                lines.append(Line(self._number, data))
        return lines


def parse(line: Line) -> Row | BadRow:
    """Read one line; the body itself is checked when it is submitted."""
    try:
        data = wire.loads(line.data.decode())
    except UnicodeDecodeError as error:
        return BadRow(line.number, None, "invalid_json_line", f"not UTF-8 at byte {error.start} of the line")
    except InvalidRequest as error:
        return BadRow(line.number, None, "invalid_json_line", error.message)
    if not isinstance(data, dict):
        return BadRow(line.number, None, "invalid_json_line", "the line is no JSON object")
    custom_id = data.get("custom_id")
    try:
        return Row(line.number, _custom_id(data), _endpoint(data), _body(data))
    except InvalidRequest as error:
        known_id = custom_id if isinstance(custom_id, str) else None
        return BadRow(line.number, known_id, error.code, error.message)


def _custom_id(data: JsonObject) -> str:
    custom_id = data.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        raise InvalidRequest("custom_id: a text is required")
    return custom_id


def _endpoint(data: JsonObject) -> Endpoint:
    if data.get("method") != "POST":
        raise InvalidRequest("method: it must be POST")
    for endpoint in _ENDPOINTS:
        if data.get("url") == endpoint:
            return endpoint
    raise InvalidRequest(f"url: it must be one of {', '.join(_ENDPOINTS)}")


def _body(data: JsonObject) -> JsonObject:
    body = data.get("body")
    if not isinstance(body, dict):
        raise InvalidRequest("body: an object is required")
    if body.get("stream"):
        raise InvalidRequest("body.stream: batches are not streamed")
    return body
