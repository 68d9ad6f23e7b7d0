"""Whether a regex of a body compiles: those of JSON schemas are JavaScript's, and Python reads most of them."""

import re
import warnings

# What these name differently in JavaScript is no error.
_FOREIGN = (
    (re.compile(r"\\[pP]\{[^{}]*\}"), r"\\w"),
    (re.compile(r"\\u\{[0-9A-Fa-f]+\}"), "u"),
    (re.compile(r"\(\?<(?=[A-Za-z_])"), "(?P<"),
)


def compiles(regex: str) -> bool:
    """Whether it is one; bound its length before."""
    for foreign, own in _FOREIGN:
        regex = foreign.sub(own, regex)
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(regex)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
