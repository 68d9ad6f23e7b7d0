"""A command in a real terminal: tmux draws it, and a test reads the screen and presses keys."""

import os
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REQUIRE_TMUX = "TOKENFLEET_REQUIRE_TMUX"
ENDED = "ended with"
"""The screen says so and names the exit code once the command is over."""


def is_there() -> bool:
    """Whether this machine has tmux."""
    return shutil.which("tmux") is not None


def is_required() -> bool:
    """Whether a missing tmux is a failure instead of a reason to skip."""
    return os.environ.get(REQUIRE_TMUX) == "1"


class Terminal:
    """One window of so many columns and lines; of a tmux server of its own."""

    def __init__(self, socket: str, width: int, height: int) -> None:
        self._tmux = ("tmux", "-L", socket, "-f", os.devnull)
        self.width, self.height = width, height

    def start(self, command: Sequence[str], folder: Path, variables: dict[str, str]) -> None:
        """Run the command, then a shell that reads a line."""
        given = [f"{name}={value}" for name, value in {"LC_ALL": "C.UTF-8", **variables}.items()]
        # Ctrl-C goes to the shell too, and only what it started is to end by it: a trap is not inherited.
        begin = f"trap : INT; {shlex.join(['env', *given, *command])}"
        script = f"{begin}; echo {ENDED} $?; read -r line; echo got $line; sleep 60"
        size = ("-x", str(self.width), "-y", str(self.height))
        self._run("new-session", "-d", *size, "-c", str(folder), f"exec sh -c {shlex.quote(script)}")

    def screen(self) -> str:
        """What stands there now, without blanks at the ends of lines."""
        return self._run("capture-pane", "-p").rstrip("\n")

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names: `q`, `C-c`, `Enter`."""
        self._run("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def close(self) -> None:
        """End what runs in it, and it."""
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], check=True, capture_output=True, text=True).stdout


@contextmanager
def terminal(width: int = 80, height: int = 24) -> Iterator[Terminal]:
    """A window that is closed at the end."""
    opened = Terminal(f"tokenfleet-{secrets.token_hex(4)}", width, height)
    try:
        yield opened
    finally:
        opened.close()
