"""Opens a batch's files; `-` is stdin or stdout."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from producer.batch.lines import Line, LineSplitter
from protocol.errors import SetupError

BLOCK_BYTES = 256 * 1024
STANDARD = "-"


@contextmanager
def opened(source: str | Path, target: str | Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Both files for the length of a block.

    Raises:
        SetupError: one can't be opened, or both are the same; then nothing was written.
    """
    if STANDARD not in (str(source), str(target)) and Path(source).resolve() == Path(target).resolve():
        raise SetupError("input and output are the same file", "Name another output.")
    with _opened(source, "rb", sys.stdin.buffer) as reader, _opened(target, "wb", sys.stdout.buffer) as writer:
        yield reader, writer


@contextmanager
def _opened(path: str | Path, mode: str, standard: BinaryIO) -> Iterator[BinaryIO]:
    if str(path) == STANDARD:
        yield standard
        return
    try:
        file: BinaryIO = Path(path).open(mode)  # type: ignore[assignment]  # noqa: SIM115 - both modes are binary
    except OSError as error:
        raise SetupError(f"{path} can't be opened: {error.strerror}") from None
    with file:
        yield file


async def blocks(reader: BinaryIO) -> AsyncIterator[list[Line]]:
    """The lines that each read completes; a pipe gives what it has."""
    splitter = LineSplitter()
    while data := await asyncio.to_thread(_read, reader):
        yield splitter.feed(data)
    yield splitter.end()


def _read(reader: BinaryIO) -> bytes:
    # A plain `read` of a pipe would wait for a whole block.
    read: bytes = reader.read1(BLOCK_BYTES) if hasattr(reader, "read1") else reader.read(BLOCK_BYTES)
    return read


def count_rows(source: str | Path, limit: int | None) -> int | None:
    """How many lines are not blank, counted up to `limit`; None for what can be read only once."""
    path = Path(source)
    if str(source) == STANDARD or not path.is_file():
        return None
    splitter, count = LineSplitter(), 0
    with path.open("rb") as file:
        while (data := file.read(BLOCK_BYTES)) and (limit is None or count < limit):
            count += len(splitter.feed(data))
    count += len(splitter.end())
    return count if limit is None else min(count, limit)
