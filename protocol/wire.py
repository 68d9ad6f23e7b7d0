"""JSON at the edges: what goes into Redis and what comes out of it."""

import json
from typing import Any

import orjson

from protocol.errors import InvalidRequest

JsonObject = dict[str, Any]
"""A JSON object whose members this code does not look into."""


def dumps(value: object) -> bytes:
    """Encode our own messages: fast, UTF-8."""
    return orjson.dumps(value)


def loads(data: bytes | str) -> Any:  # noqa: ANN401 - JSON is any value
    """Decode JSON strictly: no NaN, no Infinity, no invalid UTF-8.

    Raises:
        InvalidRequest: `data` is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        msg = f"not valid JSON: {error}"
        raise InvalidRequest(msg) from None


def canonical(value: object) -> bytes:
    """Encode a user's value so that equal values give equal bytes (keys sorted, UTF-8).

    Raises:
        InvalidRequest: the value holds NaN, Infinity, a lone surrogate, an endless integer or no JSON type.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        # UnicodeEncodeError carries the text itself: name the kind of error only.
        detail = "a lone surrogate" if isinstance(error, UnicodeEncodeError) else str(error)
        msg = f"the value can't be written as JSON: {detail}"
        raise InvalidRequest(msg) from None
