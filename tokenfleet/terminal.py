"""Text that may come from a model or another user, made harmless for a terminal."""

import sys
import unicodedata
from typing import TextIO

_KEPT = frozenset("\n\t")
# Format characters that joined emoji and scripts need; the other ones can reorder or hide what a reader sees.
_JOINERS = frozenset("\u200c\u200d")


def harmless(text: str) -> str:
    r"""Escape control characters, so that ESC shows as `\x1b` and moves no cursor; newlines and tabs stay."""
    return "".join(_escape(character) if _acts(character) else character for character in text)


def _acts(character: str) -> bool:
    if character in _KEPT or character in _JOINERS:
        return False
    return unicodedata.category(character) in ("Cc", "Cf", "Cs")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def stdout_is_terminal() -> bool:
    """Whether somebody reads along, and no other program."""
    return sys.stdout is not None and sys.stdout.isatty()


def write(text: str, stream: TextIO | None = None) -> None:
    """Write and flush: escaped to a terminal, as it is to a file or a pipe."""
    stream = stream or sys.stdout
    if stream is None:  # closed before the process began
        return
    stream.write(harmless(text) if stream.isatty() else text)
    stream.flush()
