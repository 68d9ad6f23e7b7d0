"""What a model says can't act on a terminal."""

import io
import re
from pathlib import Path

import pytest

from tokenfleet.cli import app
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


def test_what_commands_draw_on_stdout_is_never_folded_for_other_programs() -> None:
    """Only `tokenfleet top`, which wants a terminal, and `demo`, which lists nothing, draw there by themselves."""
    folder = Path(app.__file__).parent
    own = {path.name for path in folder.rglob("*.py") if re.search(r"Console\((?!stderr=True)", path.read_text())}
    assert own == {"demo.py", "top.py"}
