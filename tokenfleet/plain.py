"""People's words for rich: labels, models and files' names say what they like, and are neither markup nor control."""

from rich.console import Console, RenderableType
from rich.text import Text

from tokenfleet import terminal
from tokenfleet.terminal import harmless

ENDLESS = 1_000_000
"""Columns, where no terminal has an edge."""


def plain(words: str, style: str = "") -> Text:
    """The words as they are: as a `str` in a table or a `print`, `[/x]` would be markup, and end it."""
    return Text(harmless(words), style)


def print_drawn(drawn: RenderableType) -> None:
    """Print on stdout, laid out for the terminal; where none is, a row is one line, neither folded nor cut."""
    Console(highlight=False, width=None if terminal.stdout_is_terminal() else ENDLESS).print(drawn)
