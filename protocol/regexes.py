"""Regexes of bodies: those of JSON schemas are JavaScript's, and each engine reads a part of them.

Neither check compiles one: a class of many characters without regard to case is walked one by one for that, and 8,192
characters can ask for 15 s of it.
"""

import re
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

# `re` has no public function that only reads a regex; by its name as text, as no stub knows it.
_python: Any = import_module("re._parser")
_Tree = Any
# What these name differently in JavaScript is no error.
_FOREIGN = (
    (re.compile(r"\\[pP]\{[^{}]*\}"), r"\\w"),
    (re.compile(r"\\u\{[0-9A-Fa-f]+\}"), "u"),
    (re.compile(r"\(\?<(?=[A-Za-z_])"), "(?P<"),
)
_GRAMMAR = r"""(?sx)
    (?P<atom> \\. | \[ {first} (?:\\.|[^\]\\])*+ \] | [^\\\[()|*+?{{]++ )
    | (?P<comment> \(\?\#[^)]*+\) )
    | (?P<open> \((?!\?\#)(?:\?(?:[:=!>|]|<[=!]|P?<\w*+>|[\w^-]*+:)?+)?+ )
    | (?P<close> \) )
    | (?P<either> \| )
    | (?P<repeat> [*+?] | \{{(?P<least>\d++)(?:,(?P<most>\d*+))?\}} )
    | (?P<brace> \{{ )
"""
_READINGS = tuple(re.compile(_GRAMMAR.format(first=first)) for first in ("", r"\^?+\]?+"))
"""A `]` that stands first in a class ends it in JavaScript; elsewhere it is one of its characters."""


def may_compile(regex: str) -> bool:
    """Whether some dialect may read it. False for what none does.

    That are brackets or parentheses without their other half, a repeat of nothing, such as `a|*`, one that ends before
    it begins, such as `a{2,1}`, and a backslash at the end. It takes time in proportion to the length.
    """
    return any(_is_whole(regex, reading) for reading in _READINGS) or compiles(regex)


def compiles(regex: str) -> bool:
    """Whether Python reads it, but for some of JavaScript's names; bound its length before."""
    for foreign, own in _FOREIGN:
        regex = foreign.sub(own, regex)
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = _python.parse(regex)
            return all(least == most for least, most in _behind(tree))
    # A ValueError: a repeat of thousands of digits.
    except (re.error, OverflowError, RecursionError, ValueError):
        return False


def _behind(tree: _Tree) -> Iterator[tuple[int, int]]:
    """The widths of each look behind, least and most: Python's must be the same, which it sees when it compiles."""
    rest = [tree]
    while rest:
        match rest.pop():
            case (_python.ASSERT | _python.ASSERT_NOT, (-1, below)):
                yield below.getwidth()
                rest.append(below)
            case tuple() | list() as several:
                rest += several
            case _python.SubPattern(data=several):
                rest += several
            case _:
                pass


def _is_whole(regex: str, reading: re.Pattern[str]) -> bool:
    at = depth = 0
    repeatable = False
    while at < len(regex):
        token = reading.match(regex, at)
        if token is None:
            return False
        at = token.end()
        kind = token.lastgroup if token["repeat"] is None else "repeat"
        if kind == "repeat" and not (repeatable and _is_ordered(token["least"], token["most"])):
            return False
        depth += (kind == "open") - (kind == "close")
        if depth < 0:
            return False
        if kind != "comment":
            repeatable = kind not in ("open", "either")
    return depth == 0


def _is_ordered(least: str | None, most: str | None) -> bool:
    """As texts: Python refuses to read numbers of thousands of digits."""
    if not least or not most:
        return True
    low, high = least.lstrip("0"), most.lstrip("0")
    return (len(low), low) <= (len(high), high)
