"""What a process has seen, one line a fact: written at once, so that a kill loses none, and read again after it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Fact:
    """One line.

    Attributes:
        kind: `sub` a submit was acknowledged (`detail`: whether it made the job), `first` an attempt's first frame,
            `bad` a frame that must not be seen, `end` the outcome (`detail`: state and digest of the text),
            `unknown` the store does not know the job, `kill` and `cut` what the monkey did.
        number: of the job.
        at_s: when, by the machine's monotonic clock.
        attempt: of the job; 0 where there is none.
    """

    kind: str
    number: int
    at_s: float
    attempt: int = 0
    detail: str = ""


class Journal:
    """Appends; one writer a file."""

    def __init__(self, path: Path) -> None:
        # Unbuffered: each line is one write, whole or not there.
        self._file = path.open("ab", buffering=0)

    def note(self, kind: str, number: int, attempt: int = 0, detail: str = "") -> None:
        """Write a fact down, now."""
        self._file.write(f"{kind} {number} {time.monotonic():.6f} {attempt} {detail}\n".encode())


def read(path: Path, offset: int = 0) -> Iterator[tuple[Fact, int]]:
    """The facts from a place on, each with the place after it; a line that is not whole yet is left for later."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        lines.seek(offset)
        for line in lines:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            kind, number, at_s, attempt, detail = line.decode().rstrip("\n").split(" ", 4)
            yield Fact(kind, int(number), float(at_s), int(attempt), detail), offset


def digest(text: str) -> str:
    """Stands for a text."""
    return blake2b(text.encode(), digest_size=8).hexdigest()
