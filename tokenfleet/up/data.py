"""Where an embedded fleet keeps its data: one fleet a directory."""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import SetupError

FLEET_LOCK = "fleet.lock"
"""Held by the fleet's own process alone."""
SERVER_LOCK = "server.lock"
"""Held by that process and, inherited, by the server: free once the last of them has ended."""
HANDOVER_S = 15.0
"""How long the server of a fleet that was killed may take to end: it writes its last data first."""


@dataclass(frozen=True, slots=True)
class DataDir:
    """A directory that is ours alone."""

    path: Path
    server_lock: int
    """An open descriptor for the server to inherit."""
    temporary: bool


@contextmanager
def open_data(path: Path | None) -> Iterator[DataDir]:
    """Make and lock `path`, or a temporary directory that is removed at a clean end.

    Raises:
        SetupError: another fleet uses it, or it can't be written.
    """
    if path is None:
        with tempfile.TemporaryDirectory(prefix="tokenfleet-") as folder, _locked(Path(folder)) as lock:
            yield DataDir(Path(folder), lock, temporary=True)
        return
    path = path.expanduser().resolve()
    with _locked(path) as lock:
        yield DataDir(path, lock, temporary=False)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Hold both locks; the kernel drops them with their holders, however these end."""
    with _open(path / FLEET_LOCK) as fleet, _open(path / SERVER_LOCK) as server:
        if not _taken(fleet, patience_s=0):
            msg = f"another fleet uses the data directory {path}"
            raise SetupError(msg, "Stop it first, or name another directory with --data.")
        if not _taken(server, patience_s=HANDOVER_S):
            msg = f"the server of an earlier fleet still uses the data directory {path}"
            raise SetupError(msg, "End that process first, or name another directory with --data.")
        yield server


@contextmanager
def _open(path: Path) -> Iterator[int]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        msg = f"the data directory {path.parent} can't be used: {error.strerror}"
        raise SetupError(msg, "Name another one with --data.") from None
    try:
        yield lock
    finally:
        os.close(lock)


def _taken(lock: int, patience_s: float) -> bool:
    give_up = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                return False
            time.sleep(0.05)
        else:
            return True
