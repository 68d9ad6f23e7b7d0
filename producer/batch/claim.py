"""Room that a file has in the store before it is written: of two that come together, the second finds so much less."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import OutputFailed

PATIENCE_S = 5.0
PAUSE_S = 0.01


@dataclass(frozen=True, slots=True)
class Usage:
    """How much a tenant has in the store, the output of its batches too, and what is claimed."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Asks for room."""

    bytes: int
    check: Callable[[Usage], None]
    """Told what the tenant has without it; raises what refuses it."""


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Nobody else, of all processes on all hosts, is in a block with this file; the system frees it when we die.

    Raises:
        OutputFailed: another one stands still in there, or the file system can't lock.
    """
    give_up_s = time.monotonic() + PATIENCE_S
    try:
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OutputFailed(f"the store can't be written: {error.strerror}") from None
    try:
        while not _taken(held):
            if time.monotonic() > give_up_s:
                raise OutputFailed("another process holds the tenant's files")
            time.sleep(PAUSE_S)
        yield
    finally:
        os.close(held)


def _taken(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise OutputFailed(f"the store can't be locked: {error.strerror}") from None
    return True
