"""Opens a batch's files; `-` is stdin or stdout, and an input that ends in `.gz` is unpacked."""

import asyncio
import gzip
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from producer.batch.lines import BadRow, Line, LineSplitter
from protocol.errors import SetupError

BLOCK_BYTES = 256 * 1024
STANDARD = "-"
PACKED = ".gz"


@contextmanager
def opened(source: str | Path, target: str | Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Both files for the length of a block.

    Raises:
        SetupError: one can't be opened or is closed, or both are the same; then nothing was written.
    """
    if STANDARD not in (str(source), str(target)) and Path(source).resolve() == Path(target).resolve():
        raise SetupError("input and output are the same file", "Name another output.")
    with _opened(source, "rb", _standard(sys.stdin)) as reader, _opened(target, "ab", _standard(sys.stdout)) as writer:
        yield (cast("BinaryIO", gzip.GzipFile(fileobj=reader)) if _is_packed(source) else reader), writer


def _is_packed(source: str | Path) -> bool:
    return str(source).endswith(PACKED)


def _standard(stream: TextIO | None) -> BinaryIO | None:
    """Python has none for a descriptor that was closed before it began."""
    return stream.buffer if stream else None


@contextmanager
def _opened(path: str | Path, mode: str, standard: BinaryIO | None) -> Iterator[BinaryIO]:
    if str(path) == STANDARD:
        if standard is None:
            raise SetupError(f"{'stdin' if mode == 'rb' else 'stdout'} is closed", "Name a file.")
        yield standard
        return
    try:
        file: BinaryIO = Path(path).open(mode)  # type: ignore[assignment]  # noqa: SIM115 - both modes are binary
    except OSError as error:
        raise SetupError(f"{path} can't be opened: {error.strerror}") from None
    try:
        yield file
    finally:
        # What could not be written before can't be written now either, and was told then.
        with suppress(OSError):
            file.close()


async def blocks(reader: BinaryIO, max_line_bytes: int) -> AsyncIterator[list[Line | BadRow]]:
    """The lines that each read completes; a pipe gives what it has. What can't be read on ends with a bad row."""
    splitter = LineSplitter(max_line_bytes)
    try:
        while data := await asyncio.to_thread(_read, reader):
            yield splitter.feed(data)
    except (OSError, EOFError, zlib.error) as error:
        yield [splitter.unreadable(_why(error))]
    else:
        yield splitter.end()


def _why(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "it breaks off"
    if isinstance(error, gzip.BadGzipFile | zlib.error):
        return "it is no gzip file, or a broken one"
    return getattr(error, "strerror", None) or type(error).__name__


def _read(reader: BinaryIO) -> bytes:
    # A plain `read` of a pipe would wait for a whole block.
    read: bytes = reader.read1(BLOCK_BYTES) if hasattr(reader, "read1") else reader.read(BLOCK_BYTES)
    return read


def count_rows(source: str | Path, limit: int | None, max_line_bytes: int) -> int | None:
    """How many lines are not blank, counted up to `limit`; None for what can be read only once, or is packed."""
    path = Path(source)
    if str(source) == STANDARD or _is_packed(source) or not path.is_file():
        return None
    splitter, count = LineSplitter(max_line_bytes), 0
    with path.open("rb") as file:
        while (data := file.read(BLOCK_BYTES)) and (limit is None or count < limit):
            count += len(splitter.feed(data))
    count += len(splitter.end())
    return count if limit is None else min(count, limit)
