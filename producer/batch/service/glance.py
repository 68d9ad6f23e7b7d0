"""A glance at an input before its batch is created: which endpoint and which model its rows are for."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import TypeVar, get_args

from protocol import wire
from protocol.errors import InvalidRequest
from protocol.messages import Endpoint
from protocol.wire import JsonObject

T = TypeVar("T")
LINES_LOOKED_AT = 1_000
BYTES_LOOKED_AT = 64 * 1024 * 1024
"""Unpacked: a small file may hold terabytes."""
_ENDPOINTS: tuple[Endpoint, ...] = get_args(Endpoint)
DEFAULT: Endpoint = "/v1/chat/completions"


def endpoint_of(path: Path) -> Endpoint:
    """The endpoint of the first row that has one; the validation, which reads all rows, has the last word.

    A file without such a row gets the most common one, and is refused when a runner validates it.
    """
    return _first(path, _endpoint) or DEFAULT


def model_of(path: Path) -> str:
    """The model of the first row that names one; empty when none of those that are looked at does."""
    return _first(path, _model) or ""


def _first(path: Path, find: Callable[[JsonObject], T | None]) -> T | None:
    packed = path.suffix == ".gz"
    try:
        with path.open("rb") as plain, gzip.GzipFile(fileobj=plain) if packed else plain as reader:
            for line in islice(_lines(reader), LINES_LOOKED_AT):
                if (row := _row(line)) and (found := find(row)):
                    return found
    except (OSError, EOFError, zlib.error):
        pass
    return None


def _lines(reader: BufferedIOBase) -> Iterator[bytes]:
    left = BYTES_LOOKED_AT
    while line := reader.readline(left):
        left -= len(line)
        yield line


def _row(line: bytes) -> JsonObject | None:
    try:
        row = wire.loads(line.removeprefix(b"\xef\xbb\xbf").strip())
    except InvalidRequest:
        return None
    return row if isinstance(row, dict) else None


def _endpoint(row: JsonObject) -> Endpoint | None:
    return next((endpoint for endpoint in _ENDPOINTS if endpoint == row.get("url")), None)


def _model(row: JsonObject) -> str | None:
    body = row.get("body")
    model = body.get("model") if isinstance(body, dict) else None
    return model if isinstance(model, str) else None
