"""A state file as SQLite has it: one process at a time, each change whole or not at all, its errors as ours."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from producer.batch import ledger_schema as schema
from producer.batch.records import Facts
from protocol import wire
from protocol.errors import OutputFailed, SetupError, Unreadable

BLOCK_ROWS = 1_000


class StateFile:
    """One open state file, and the facts that hold for its whole batch; its rows are `Ledger`'s.

    Any thread may call, one at a time. Each call is one transaction. Every method raises OutputFailed when the disk is
    full, and Unreadable when the file is damaged.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        """Take over an open file; use `create` or `open`."""
        self.path = path
        self._db = db

    @classmethod
    def create(cls, path: str | Path) -> Self:
        """Begin a new file; what stood there is deleted.

        Raises:
            SetupError: it can't be made, or another run has it open.
        """
        path = Path(path)
        refuse_in_use(path)
        delete(path)
        with _typed(path):
            db = _connect(path)
            db.executescript(schema.PRAGMAS + schema.TABLES)
            db.execute("ATTACH DATABASE ? AS intake", (str(_intake(path)),))
            db.executescript(schema.INTAKE)
        return cls(path, db)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Go on with a file whose rows are planned.

        Raises:
            SetupError: there is none, another run has it open, its rows are not planned, or it is another version's.
            Unreadable: it is no such file.
        """
        path = Path(path)
        if not path.is_file():
            raise SetupError(f"{path} is not there", "Without it a batch can't be resumed.")
        with _typed(path):
            db = _connect(path)
        book = cls(path, db)
        try:
            book._check_planned()
        except BaseException:
            book.close()
            raise
        return book

    def _check_planned(self) -> None:
        with self._reading() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            planned = version == schema.VERSION and db.execute("SELECT 1 FROM facts").fetchone()
        if not planned or self.facts().state == "validating":
            why = "the batch was not validated to its end" if version in (0, schema.VERSION) else "of another version"
            raise SetupError(f"{self.path} can't be resumed: {why}", "Begin anew.")

    def close(self) -> None:
        """Everything stands in the one file then. Never raises."""
        with suppress(sqlite3.Error):
            self._db.close()
        _intake(self.path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def facts(self) -> Facts:
        """What `set_facts` was told last.

        Raises:
            Unreadable: nothing yet, or by another version.
        """
        with self._reading() as db:
            row = db.execute("SELECT facts FROM facts").fetchone()
        try:
            return Facts(**wire.loads(row[0]))
        except TypeError:
            raise Unreadable(f"{self.path} holds no facts of this version") from None

    def set_facts(self, facts: Facts) -> None:
        """Keep the facts, in place of earlier ones."""
        with self._writing() as db:
            db.execute("DELETE FROM facts")
            db.execute("INSERT INTO facts VALUES (?)", (wire.dumps(asdict(facts)).decode(),))

    def moved(self, path: Path) -> Self:
        """The same under another name, in place of what stood there; this one is closed.

        Raises:
            SetupError: another run has open what stands there.
        """
        refuse_in_use(path)
        with self._reading() as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # All stands in the one file then; a full disk is told.
        self.close()
        for file in _around(path):
            file.unlink(missing_ok=True)
        self.path.replace(path)
        return type(self).open(path)

    def _drop_intake(self) -> None:
        with _typed(self.path):
            self._db.execute("DETACH DATABASE intake")
        _intake(self.path).unlink(missing_ok=True)

    def _stream(self, query: str, *values: object) -> Iterator[Any]:
        with self._reading() as db:
            cursor = db.execute(query, values)
            while block := cursor.fetchmany(BLOCK_ROWS):
                yield from block

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with _typed(self.path):
            yield self._db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with _typed(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # A full disk has ended it already.
                    self._db.execute("ROLLBACK")
                raise


def refuse_in_use(path: Path) -> None:
    """Raises where a run goes on by a file: it would lose it.

    Raises:
        SetupError: one does.
    """
    if path.exists():
        with suppress(Unreadable), _typed(path):
            _connect(path).close()


def delete(path: Path) -> None:
    """Delete a state file and what belongs to it, if it is there."""
    for file in (path, *_around(path)):
        file.unlink(missing_ok=True)


def _around(path: Path) -> list[Path]:
    """What SQLite has beside a file."""
    return [Path(f"{path}{ending}") for ending in ("-wal", "-shm", "-journal", "-intake")]


def _intake(path: Path) -> Path:
    return path.with_name(f"{path.name}-intake")


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        db.executescript(schema.PRAGMAS)
        db.execute("BEGIN IMMEDIATE")
        db.execute("COMMIT")
    except sqlite3.Error:
        db.close()
        raise
    return db


@contextmanager
def _typed(path: Path) -> Iterator[None]:
    """SQLite's errors as ours. Its messages hold no values of rows."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        # Its lowest byte is the kind: the rest says more of it, as that another run is just mending the file.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise SetupError(f"{path} is in use", "Another run of this batch goes on.") from None
        if code == sqlite3.SQLITE_CANTOPEN:
            raise SetupError(f"{path} can't be made or opened") from None
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            # The last: it lacks our tables.
            raise Unreadable(f"{path} is no state file of a batch, or a damaged one") from None
        if isinstance(error, sqlite3.OperationalError):
            raise OutputFailed(f"{path} can't be written: {error}") from None
        raise
