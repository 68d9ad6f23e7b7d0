"""The files that lines are appended to, as rows end. Each line stands there whole, and has its place."""

import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from producer.batch.records import OutFile
from protocol import failpoints
from protocol.errors import OutputFailed, SetupError

STANDARD = "-"
BLOCK_BYTES = 1 << 20


class Lines(Protocol):
    """Where lines go. `size` is where the next one will stand."""

    size: int

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines, whole.

        Raises:
            OutputFailed: they can't be written, and none of them stands there.
            BrokenPipeError: nobody reads them any more.
        """
        ...

    def sync(self) -> None:
        """Return once a power cut would not take what was written."""
        ...

    def close(self) -> None:
        """Let go of it; never raises."""
        ...


class LineFile:
    """A file on a disk; what stands there can be read again, and cut off."""

    def __init__(self, path: Path, *, named: bool = False) -> None:
        """Open the file, or make it; `named`: it will be read by its name, so it must keep that.

        Raises:
            SetupError: that can't be done, or another batch appends to it.
        """
        self._path = path if named else None
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self.size = os.fstat(self._fd).st_size
        except OSError as error:
            raise SetupError(f"{path} can't be opened: {error.strerror}") from None
        try:
            _take(self._fd, path)
        except SetupError:
            self.close()
            raise

    def append(self, lines: Sequence[bytes]) -> None:
        """See `Lines`."""
        data = memoryview(b"".join(lines))
        half = len(data) // 2
        try:
            self._write(data[:half], self.size)
            failpoints.reach("producer.in_line")
            self._write(data[half:], self.size + half)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise OutputFailed(f"the output can't be written: {error.strerror}") from None
        self.size += len(data)

    def _write(self, data: memoryview, at: int) -> None:
        while data:
            count = os.pwrite(self._fd, data, at)
            data, at = data[count:], at + count

    def read(self, start: int, length: int) -> bytes:
        """Bytes of the file; fewer where it ends before."""
        return os.pread(self._fd, length, start)

    def lines(self, start: int) -> Iterator[bytes]:
        """The whole lines behind a place, each with its newline; a last one without is left out."""
        rest = b""
        while block := self.read(start, BLOCK_BYTES):
            start += len(block)
            *whole, rest = (rest + block).split(b"\n")
            yield from (line + b"\n" for line in whole)

    def cut(self, size: int) -> None:
        """Let the file end there.

        Raises:
            OutputFailed: it can't be written.
        """
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise OutputFailed(f"the output can't be written: {error.strerror}") from None
        self.size = size

    def sync(self) -> None:
        """See `Lines`.

        Raises:
            OutputFailed: it can't be written, or was deleted or replaced: the lines would be gone once it is closed.
        """
        try:
            os.fsync(self._fd)
            there = not self._path or os.path.samestat(os.fstat(self._fd), self._path.stat())
        except FileNotFoundError:
            there = False
        except OSError as error:
            raise OutputFailed(f"the output can't be written: {error.strerror}") from None
        if not there:
            hint = "--resume (resume=True) runs anew what is not there."
            raise OutputFailed(f"{self._path} was deleted or replaced while the batch ran", hint)

    def close(self) -> None:
        """See `Lines`."""
        with suppress(OSError):
            os.close(self._fd)


def refuse_in_use(path: Path) -> None:
    """Raises where another batch appends lines to a file.

    Raises:
        SetupError: one does.
    """
    with suppress(OSError), path.open("rb") as file:
        _take(file.fileno(), path)


def _take(fd: int, path: Path) -> None:
    """Have a file to ourselves until it is closed; where the file system can't lock, nobody is kept out."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SetupError(f"{path} is in use", "Another batch writes its lines there.") from None
    except OSError:
        pass


class LineStream:
    """A pipe, a terminal or a device: what was written is gone."""

    def __init__(self, stream: BinaryIO) -> None:
        """Write to an open stream; `close` leaves it open."""
        self._stream = stream
        self.size = 0

    def append(self, lines: Sequence[bytes]) -> None:
        """See `Lines`."""
        data = b"".join(lines)
        try:
            self._stream.write(data)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(f"the output can't be written: {error.strerror}") from None
        self.size += len(data)

    def sync(self) -> None:
        """Nothing more can be done."""

    def close(self) -> None:
        """It is not ours."""


def stream(path: str | Path) -> LineStream:
    """Stdout for `-`, or a device or pipe by its name.

    Raises:
        SetupError: it is closed, or can't be opened.
    """
    if str(path) == STANDARD:
        if sys.stdout is None:  # closed before the process began
            raise SetupError("stdout is closed", "Name a file.")
        return LineStream(sys.stdout.buffer)
    try:
        return LineStream(Path(path).open("wb"))
    except OSError as error:
        raise SetupError(f"{path} can't be opened: {error.strerror}") from None


class Output:
    """OUT and, where one is named, ERR: failed rows stand there."""

    def __init__(self, files: Sequence[Lines]) -> None:
        """Append to these: OUT, then ERR where there is one."""
        self.files = dict(zip(OutFile, files, strict=False))

    def file_of(self, *, failed: bool) -> OutFile:
        """Where a row's line goes."""
        return OutFile.ERR if failed and OutFile.ERR in self.files else OutFile.OUT

    def append(self, lines: Sequence[tuple[bytes, bool]]) -> list[tuple[OutFile, int]]:
        """Write lines, each with whether its row failed; in which file and where each begins.

        Raises:
            OutputFailed, BrokenPipeError: see `Lines`.
        """
        parts: dict[OutFile, list[bytes]] = {}
        ends = {file: lines_.size for file, lines_ in self.files.items()}
        places = []
        for line, failed in lines:
            file = self.file_of(failed=failed)
            parts.setdefault(file, []).append(line)
            places.append((file, ends[file]))
            ends[file] += len(line)
        for file, whole in parts.items():
            self.files[file].append(whole)
        return places

    def sync(self) -> None:
        """See `Lines`."""
        for file in self.files.values():
            file.sync()

    def close(self) -> None:
        """See `Lines`."""
        for file in self.files.values():
            file.close()
