"""The folder in which a batch's output grows: one process writes there at a time, others may read."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import FleetError, OutputFailed


class Occupied(FleetError):
    """Another process still writes there: it stands still, and has not noticed yet that it lost the batch."""

    code = "occupied"


@dataclass(frozen=True, slots=True)
class Workplace:
    """The files of one batch that runs."""

    folder: Path

    @property
    def output(self) -> Path:
        """Lines of rows that were answered."""
        return self.folder / "output.jsonl"

    @property
    def errors(self) -> Path:
        """Lines of rows that failed."""
        return self.folder / "errors.jsonl"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else holds it for the length of a block; the system frees it when this process dies, however.

        A lease alone would not do: a process that stands still for longer would go on writing for a moment.

        Raises:
            Occupied: another process does.
            OutputFailed: the folder can't be made.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OutputFailed(f"the store can't be written: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise Occupied("another process still holds the batch's folder") from None
        try:
            yield
        finally:
            os.close(lock)

    def clear(self) -> None:
        """Delete all of it; what can't be deleted now is tried again by the clean-up."""
        shutil.rmtree(self.folder, ignore_errors=True)


def whole_lines(path: Path, start: int = 0) -> Iterator[bytes]:
    """The lines that are finished, with their newlines, from a place on; none where the file is not there yet."""
    with suppress(FileNotFoundError), path.open("rb") as reader:
        reader.seek(start)
        for line in reader:
            if line.endswith(b"\n"):
                yield line
