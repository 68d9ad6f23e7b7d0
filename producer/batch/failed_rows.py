"""Takes the rows that failed out of a batch's input, to be mended and run: from the files alone."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from producer.batch.lines import BadRow, Line
from producer.batch.reconcile import NUMBERED, custom_id_of, lines_of
from protocol import wire
from protocol.errors import InvalidRequest, OutputFailed, SetupError

_FAILED = "SELECT EXISTS (SELECT 1 FROM failed WHERE id = ?) OR EXISTS (SELECT 1 FROM failed WHERE number = ?)"


def write_failed(given: Path, results: Sequence[Path], target: Path) -> int:
    """Write the lines of an input, as they are, whose lines in the results say that they failed; how many.

    Lines of rows that never ended are among them. Memory stays flat, a temporary file grows.

    Raises:
        SetupError: a file can't be opened, or the target is there.
        OutputFailed: the disk is full; nothing is left at the target.
    """
    count = 0
    with _made(target) as file:
        try:
            for line in _failed(given, results):
                file.write(line + b"\n")
                count += 1
            file.flush()
        except BaseException as error:
            target.unlink(missing_ok=True)
            if isinstance(error, OSError | sqlite3.OperationalError):
                why = getattr(error, "strerror", None) or str(error)
                raise OutputFailed(f"{target} can't be written: {why}") from None
            raise
    return count


def _made(target: Path) -> BinaryIO:
    try:
        return target.open("xb")
    except FileExistsError:
        raise SetupError(f"{target} exists", "Name another file for the failed rows.") from None
    except OSError as error:
        raise SetupError(f"{target} can't be opened: {error.strerror}") from None


def _failed(given: Path, results: Sequence[Path]) -> Iterator[bytes]:
    with closing(sqlite3.connect("", isolation_level=None)) as db:
        db.execute("CREATE TABLE failed (id TEXT, number INTEGER)")
        db.execute("BEGIN")
        for path in results:
            for lines in lines_of(path):
                db.executemany("INSERT INTO failed VALUES (?, ?)", filter(None, map(_failure, lines)))
        db.execute("CREATE INDEX by_id ON failed (id)")
        db.execute("CREATE INDEX by_number ON failed (number)")
        for lines in lines_of(given):
            for line in lines:
                if isinstance(line, Line) and db.execute(_FAILED, (custom_id_of(line), line.number)).fetchone()[0]:
                    yield line.data


def _failure(line: Line | BadRow) -> tuple[str | None, int | None] | None:
    """The id of the row, or its number where it has none; None where it has not failed."""
    if isinstance(line, BadRow):
        return None
    try:
        answer = wire.loads(line.data)
        response, error, custom_id = answer["response"], answer["error"], answer["custom_id"]
        if response and response["status_code"] < 400:
            return None
        if isinstance(custom_id, str):
            return custom_id, None
        found = NUMBERED.match(error["message"])
    except (InvalidRequest, KeyError, TypeError):
        return None
    return (None, int(found[1])) if found else None
