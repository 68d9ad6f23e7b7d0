"""Reads a batch's input: `-` is stdin, `.gz` is unpacked, and a pipe never keeps a stop waiting."""

import gzip
import hashlib
import io
import os
import select
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from producer.batch.records import Facts
from protocol.errors import InputChanged, SetupError

BLOCK_BYTES = 256 * 1024
STANDARD = "-"
PACKED = ".gz"
POLL_S = 0.2
BROKEN = b"broken"
"""Stands in a digest for what could not be read."""
UNREADABLE = (OSError, EOFError, zlib.error)
"""What reading on can raise."""


def never() -> bool:
    """For whoever is not stopped."""
    return False


class Reader(Protocol):
    """What blocks of an input are read from."""

    def read1(self, size: int, /) -> bytes:
        """At most `size` bytes, as soon as there are some; none at the end."""
        ...


class Patient:
    """A file, or a pipe whose silence keeps no stop waiting: once `stopped`, there is no more to read."""

    def __init__(self, file: BinaryIO, stopped: Callable[[], bool] = never) -> None:
        """Read an open file."""
        self._file, self._stopped = file, stopped

    def read(self, size: int) -> bytes:
        """What there is, as soon as there is some: a plain `read` of a pipe would wait for a whole block."""
        while not self._stopped():
            if not _silent(self._file):
                return cast("bytes", getattr(self._file, "read1", self._file.read)(size))
        return b""

    read1 = read


def in_place(source: Path) -> bool:
    """Whether rows can be read from the input itself, by their places."""
    return repeatable(source) and not _packed(source)


def repeatable(source: Path) -> bool:
    """Whether it can be read twice: a file, no pipe."""
    return str(source) != STANDARD and source.is_file()


def stamp(source: Path) -> tuple[int, int]:
    """Size in bytes and time of the last change in ns; zeros of what is no file."""
    if not repeatable(source):
        return 0, 0
    status = source.stat()
    return status.st_size, status.st_mtime_ns


@contextmanager
def reading(source: Path, stopped: Callable[[], bool] = never) -> Iterator[Reader]:
    """The readable input for the length of a block.

    Raises:
        SetupError: it can't be opened, or stdin is closed.
    """
    if str(source) == STANDARD:
        if sys.stdin is None:
            raise SetupError("stdin is closed", "Name a file.")
        yield Patient(sys.stdin.buffer, stopped)
        return
    with opened(source) as file:
        patient = Patient(file, stopped)
        yield cast("Reader", gzip.GzipFile(fileobj=cast("BinaryIO", patient))) if _packed(source) else patient


def opened(source: Path) -> BinaryIO:
    """A file, open for reading. A pipe that nobody writes to yet is not waited for: it is silent.

    Raises:
        SetupError: that can't be done.
    """
    try:
        at_once = os.O_NONBLOCK if source.is_fifo() else 0
        file = open(source, "rb", opener=lambda name, flags: os.open(name, flags | at_once))  # noqa: SIM115 - is returned
        os.set_blocking(file.fileno(), True)
    except OSError as error:
        raise SetupError(f"{source} can't be opened: {error.strerror}") from None
    return file


def blocks(reader: Reader, stopped: Callable[[], bool] = never) -> Iterator[bytes]:
    """What there is, as it comes, until the end or until `stopped`.

    Raises:
        OSError, EOFError, zlib.error: it can't be read on; see `why`.
    """
    while not stopped() and (data := reader.read1(BLOCK_BYTES)):
        yield data


def why(error: Exception) -> str:
    """Why reading came to its end too early."""
    if isinstance(error, EOFError):
        return "it breaks off"
    if isinstance(error, gzip.BadGzipFile | zlib.error):
        return "it is no gzip file, or a broken one"
    return getattr(error, "strerror", None) or type(error).__name__


def check_unchanged(facts: Facts, source: str | Path) -> None:
    """See that an input is what it was when it was taken in.

    Size and time of the last change as they were are trusted; otherwise the input is read once more. A pipe is not
    looked at: its rows are read from where they were spooled to, see `check_piped`.

    Raises:
        InputChanged: it is another.
        SetupError: it can't be opened, or what it was spooled to is gone.
    """
    path = Path(source)
    if facts.readable and not Path(facts.readable).is_file():
        raise SetupError(f"{facts.readable} is not there", "The batch's rows are read from it. Begin anew.")
    if _pipe(path) or stamp(path) == (facts.size, facts.mtime_ns):
        return
    digest = hashlib.sha256()
    with reading(path) as reader:
        try:
            for data in blocks(reader):
                digest.update(data)
        except UNREADABLE:
            digest.update(BROKEN)
    if digest.hexdigest() != facts.sha256:
        if path.absolute() != Path(facts.source).absolute():
            other = f"{path} is another file than the batch's input, {facts.source}"
            raise InputChanged(other, "Name that one, or begin anew.")
        raise InputChanged(f"{path} is not what it was when the batch began", "Restore it, or begin anew.")


def check_piped(facts: Facts, source: str | Path, stopped: Callable[[], bool] = never) -> None:
    """See that a pipe brings the batch's input again, as it is kept; it is compared as it comes.

    One that brings nothing says nothing, nor do a closed stdin and a terminal. Where a limit has cut the input off,
    more may come behind what is kept.

    Raises:
        InputChanged: it brings something else.
    """
    path = Path(source)
    if str(path) == STANDARD and (sys.stdin is None or sys.stdin.isatty()):
        return
    if facts.readable == facts.source:
        check_unchanged(facts, facts.source)
    limit = facts.options.get("limit")
    with opened(Path(facts.readable)) as kept, reading(path, stopped) as reader:
        if not _same(reader, kept, stopped, more=limit is not None and facts.rows >= limit):
            name = "stdin" if str(path) == STANDARD else str(path)
            hint = f"Bring it again, as it is in {facts.readable}, or nothing, as of /dev/null; or begin anew."
            raise InputChanged(f"{name} brings something else than the batch's input", hint)


def _same(reader: Reader, kept: BinaryIO, stopped: Callable[[], bool], *, more: bool) -> bool:
    left = size = os.fstat(kept.fileno()).st_size
    try:
        for data in blocks(reader, stopped):
            known = kept.read(len(data))
            left -= len(data)
            if known != data[: len(known)] or (left < 0 and not more):
                return False
            if left <= 0 and more:
                return True
    except UNREADABLE:
        pass  # It may have come to the same end before; whatever is missing counts.
    return left in (0, size) or stopped()


def _pipe(source: Path) -> bool:
    """Whether what it brings comes once."""
    return str(source) == STANDARD or source.is_fifo()


def _packed(source: Path) -> bool:
    return source.name.endswith(PACKED)


def _silent(reader: BinaryIO) -> bool:
    """Whether nothing comes for a moment; only pipes and terminals are ever silent."""
    if not isinstance(reader, io.BufferedReader | io.RawIOBase):
        return False  # It may hold what its descriptor has brought, as an HTTP answer does.
    try:
        return not reader.seekable() and not select.select([reader], [], [], POLL_S)[0]
    except (OSError, ValueError):
        return False  # What has no descriptor never waits.
