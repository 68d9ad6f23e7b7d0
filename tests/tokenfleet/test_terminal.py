"""What a model says can't act on a terminal."""

import io

import pytest

from tokenfleet.terminal import harmless, write


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text,\n\ttwo lines", "plain text,\n\ttwo lines"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("over\rwritten", r"over\rwritten"),
        ("\x9b31m", r"\x9b31m"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("naïve 漢字 👩\u200d🚀", "naïve 漢字 👩\u200d🚀"),
        ("\ud83d", r"\ud83d"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_only_a_terminal_needs_it() -> None:
    terminal, file = Terminal(), io.StringIO()
    write("\x1b[1m", terminal)
    write("\x1b[1m", file)
    assert (terminal.getvalue(), file.getvalue()) == (r"\x1b[1m", "\x1b[1m")
