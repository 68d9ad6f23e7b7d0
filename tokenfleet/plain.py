"""People's words for rich: labels, models and files' names say what they like, and are neither markup nor control."""

from rich.text import Text

from tokenfleet.terminal import harmless


def plain(words: str, style: str = "") -> Text:
    """The words as they are: as a `str` in a table or a `print`, `[/x]` would be markup, and end it."""
    return Text(harmless(words), style)
