"""JSON at the edges: what goes into Redis and what comes out of it."""

import json
import re
from typing import Any

import orjson

from protocol.errors import InvalidJson

JsonObject = dict[str, Any]
"""A JSON object whose members this code does not look into."""
MAX_NESTING = 64
"""Objects and lists within each other, the outermost one counted."""
_BOM = b"\xef\xbb\xbf"
# Only then can an integer have more than 64 bits.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def dumps(value: object) -> bytes:
    """Encode our own messages: fast, UTF-8."""
    return orjson.dumps(value)


def loads(data: bytes | str) -> Any:  # noqa: ANN401 - JSON is any value
    """Decode JSON strictly: no NaN, no Infinity, no invalid UTF-8.

    Raises:
        InvalidJson: `data` is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        msg = f"not valid JSON: {error}"
        raise InvalidJson(msg) from None


def loads_of_user(data: bytes, max_nesting: int = MAX_NESTING, *, wide_integers: bool = False) -> Any:  # noqa: ANN401 - JSON is any value
    """Decode what a user wrote; a byte order mark before it is skipped.

    Beside what `loads` refuses: an object that has a name twice, of which readers take the first or the last, an
    integer of more than 64 bits, which readers round, and what is nested deeper than `max_nesting`. With
    `wide_integers` such an integer is read as a float.

    Raises:
        InvalidJson: `data` is not such JSON. The message repeats nothing of it.
    """
    data = data.removeprefix(_BOM)
    value = loads(data)
    if nested_over(max_nesting, value, data):
        raise InvalidJson(f"not valid JSON: nested over {max_nesting} deep")
    integer = float if wide_integers else _integer
    json.loads(data.decode(), object_pairs_hook=_members, parse_int=integer if _LONG_NUMBER.search(data) else None)
    return value


def nested_over(levels: int, value: object, encoded: bytes) -> bool:
    """Whether lists and objects stand within each other over `levels` deep; `encoded` is the same value as JSON."""
    # Fewer brackets than levels allowed: no need to walk. Others inside strings cost a walk, no error.
    if encoded.count(b"{") + encoded.count(b"[") <= levels:
        return False
    level: list[object] = [value]
    for _ in range(levels):
        level = [child for item in level for child in _children(item) if isinstance(child, dict | list | tuple)]
        if not level:
            return False
    return True


def _children(item: object) -> list[object]:
    if isinstance(item, dict):
        return list(item.values())
    return list(item) if isinstance(item, list | tuple) else []


def _members(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise InvalidJson("not valid JSON: an object has the same name twice")


def _integer(text: str) -> None:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**64:
        raise InvalidJson("not valid JSON: an integer has more than 64 bits")


def canonical(value: object) -> bytes:
    """Encode a user's value so that equal values give equal bytes (keys sorted, UTF-8).

    Raises:
        InvalidJson: the value holds NaN, Infinity, a lone surrogate, an endless integer or no JSON type.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        # UnicodeEncodeError carries the text itself: name the kind of error only.
        detail = "a lone surrogate" if isinstance(error, UnicodeEncodeError) else str(error)
        msg = f"the value can't be written as JSON: {detail}"
        raise InvalidJson(msg) from None
