"""A glance at an input before its batch is created: which endpoint its rows are for."""

import gzip
import zlib
from itertools import islice
from pathlib import Path
from typing import get_args

from protocol import wire
from protocol.errors import InvalidRequest
from protocol.messages import Endpoint

LINES_LOOKED_AT = 1_000
_LONGEST = 64 * 1024 * 1024
_ENDPOINTS: tuple[Endpoint, ...] = get_args(Endpoint)
DEFAULT: Endpoint = "/v1/chat/completions"


def endpoint_of(path: Path) -> Endpoint:
    """The endpoint of the first row that has one; the validation, which reads all rows, has the last word.

    A file without such a row gets the most common one, and is refused when a runner validates it.
    """
    packed = path.suffix == ".gz"
    try:
        with path.open("rb") as plain, gzip.GzipFile(fileobj=plain) if packed else plain as reader:
            for line in islice(iter(lambda: reader.readline(_LONGEST), b""), LINES_LOOKED_AT):
                if found := _endpoint(line):
                    return found
    except (OSError, EOFError, zlib.error):
        pass
    return DEFAULT


def _endpoint(line: bytes) -> Endpoint | None:
    try:
        row = wire.loads(line.removeprefix(b"\xef\xbb\xbf").strip())
    except InvalidRequest:
        return None
    url = row.get("url") if isinstance(row, dict) else None
    return next((endpoint for endpoint in _ENDPOINTS if endpoint == url), None)
