"""Proves from a batch's files alone that each line of its input has exactly one line of output or error."""

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from producer.batch import source
from producer.batch.lines import BadRow, Line, LineSplitter
from protocol import wire
from protocol.errors import InvalidRequest, OutputFailed

LONGEST_LINE_BYTES = 1 << 30
MOST_PLACES = 20
"""So many places of one id are named; all are counted."""
# The line of a row that could not be read has no id; its message begins with the number.
NUMBERED = re.compile(r"line ([0-9]{1,18}): ")

_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -8192;
CREATE TABLE inputs (line INTEGER PRIMARY KEY, id TEXT, answers INTEGER NOT NULL DEFAULT 0);
CREATE TABLE outputs (seq INTEGER PRIMARY KEY, file INTEGER, line INTEGER, id TEXT, number INTEGER, mark BLOB);
CREATE TABLE unreadable (seq INTEGER PRIMARY KEY, file INTEGER, line INTEGER, why TEXT);
"""
# A line without an id answers the line of the input that it names; the others of an id are told apart by their marks.
_INDEXES = """
CREATE INDEX outputs_by_id ON outputs (id, mark) WHERE id IS NOT NULL;
CREATE INDEX outputs_by_number ON outputs (number) WHERE id IS NULL;
CREATE INDEX inputs_by_id ON inputs (id, answers) WHERE id IS NOT NULL;
UPDATE inputs SET answers = n FROM (SELECT number, count(*) AS n FROM outputs WHERE id IS NULL GROUP BY number)
WHERE number = inputs.line;
"""
_GROUPS = """
SELECT want.id, want.line, want.n, coalesce(have.n, 0), coalesce(have.marks, 0) FROM
  (SELECT id, min(line) AS line, sum(answers = 0) AS n FROM inputs WHERE id IS NOT NULL GROUP BY id) want
LEFT JOIN
  (SELECT id, count(*) AS n, count(DISTINCT mark) AS marks FROM outputs WHERE id IS NOT NULL GROUP BY id) have
USING (id)
WHERE want.n != coalesce(have.n, 0) OR want.n != coalesce(have.marks, 0)
"""
_FOREIGN = """
SELECT file, line, id FROM outputs WHERE CASE WHEN id IS NULL
  THEN NOT EXISTS (SELECT 1 FROM inputs WHERE inputs.line = outputs.number)
  ELSE NOT EXISTS (SELECT 1 FROM inputs WHERE inputs.id = outputs.id) END
ORDER BY seq
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, from 1."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What keeps a batch from being proven."""

    kind: str
    """`missing`, `doubled`, `foreign` or `unreadable`."""
    custom_id: str | None
    input_line: int | None
    """The first of the input that it concerns."""
    places: tuple[Place, ...] = ()
    """Of output or error lines; at most 20."""
    why: str = ""


@dataclass(slots=True)
class Report:
    """How many of each."""

    rows: int = 0
    """Lines of the input that are not blank."""
    lines: int = 0
    """Lines of output and error that are not blank."""
    missing: int = 0
    doubled: int = 0
    foreign: int = 0
    unreadable: int = 0

    @property
    def proven(self) -> bool:
        """Whether each line of the input has exactly one line, and there is no other."""
        return not (self.missing or self.doubled or self.foreign or self.unreadable)

    def as_json(self) -> dict[str, object]:
        """The figures for machines."""
        return {"proven": self.proven, **asdict(self)}


class Reconciler:
    """Compares an input with the files that hold its lines; memory stays flat, a temporary file grows.

    Use: `read`, then iterate over `findings`, then look at `report`.
    """

    def __init__(
        self,
        given: str | Path,
        results: Sequence[str | Path],
        limit: int | None = None,
        on_lines: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`given` is the input; each may be packed. `limit`: only so many rows of it count, as the batch's own.

        `on_lines` is told how many lines of all files were read so far.

        Raises:
            InvalidRequest: two of the files are the same.
        """
        self._given = Path(given)
        self._results = [Path(result) for result in results]
        self._limit, self._on_lines = limit, on_lines
        names = [path.resolve() for path in [self._given, *self._results]]
        if len(set(names)) < len(names):
            raise InvalidRequest("two of the files are the same", "Name the input, the output and the error file.")
        self.report = Report()

    def findings(self) -> Iterator[Finding]:
        """Everything that is wrong, kind by kind; the report counts along.

        Raises:
            SetupError: a file can't be opened.
            OutputFailed: there is no room for the temporary file.
        """
        try:
            with closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as db:
                db.executescript(_TABLES)
                db.execute("BEGIN")
                self._read(db)
                db.executescript(_INDEXES)
                yield from self._unreadable(db)
                yield from self._rows(db)
                yield from self._bad_rows(db)
                yield from self._foreign(db)
        except sqlite3.OperationalError as error:
            raise OutputFailed(f"the temporary file can't be written: {error}") from None

    def _read(self, db: sqlite3.Connection) -> None:
        for lines in _first(lines_of(self._given), self._limit):
            self.report.rows += len(lines)
            self._on_lines(self.report.rows + self.report.lines)
            db.executemany(
                "INSERT INTO inputs (line, id) VALUES (?, ?)", [(one.number, custom_id_of(one)) for one in lines]
            )
        for file, path in enumerate(self._results):
            for lines in lines_of(path):
                self.report.lines += len(lines)
                self._on_lines(self.report.rows + self.report.lines)
                self._take(db, file, lines)

    @staticmethod
    def _take(db: sqlite3.Connection, file: int, lines: Sequence[Line | BadRow]) -> None:
        good, bad = [], []
        for line in lines:
            try:
                good.append((file, line.number, *_answer(line)))
            except _Unreadable as error:
                bad.append((file, line.number, str(error)))
        db.executemany("INSERT INTO outputs (file, line, id, number, mark) VALUES (?, ?, ?, ?, ?)", good)
        db.executemany("INSERT INTO unreadable (file, line, why) VALUES (?, ?, ?)", bad)

    def _unreadable(self, db: sqlite3.Connection) -> Iterator[Finding]:
        for file, line, why in db.execute("SELECT file, line, why FROM unreadable ORDER BY seq"):
            self.report.unreadable += 1
            yield Finding("unreadable", None, None, (self._place(file, line),), why)

    def _rows(self, db: sqlite3.Connection) -> Iterator[Finding]:
        """Lines of the input that have an id."""
        for custom_id, line, wanted, lines, marks in db.execute(_GROUPS):
            where = db.execute(
                "SELECT file, line FROM outputs WHERE id = ? ORDER BY seq LIMIT ?", (custom_id, MOST_PLACES)
            )
            places = tuple(self._place(*found) for found in where)
            if marks < wanted:
                self.report.missing += wanted - marks
                yield Finding("missing", custom_id, line, places)
            if lines > marks or lines > wanted:
                self.report.doubled += max(lines - marks, lines - wanted)
                yield Finding("doubled", custom_id, line, places)

    def _bad_rows(self, db: sqlite3.Connection) -> Iterator[Finding]:
        """Lines of the input that have none, or whose lines name them by their numbers."""
        unanswered = "SELECT line FROM inputs WHERE id IS NULL AND answers = 0 ORDER BY line"
        for (line,) in db.execute(unanswered):
            self.report.missing += 1
            yield Finding("missing", None, line)
        for line, custom_id, answers in db.execute(
            "SELECT line, id, answers FROM inputs WHERE answers > 1 ORDER BY line"
        ):
            query = "SELECT file, line FROM outputs WHERE id IS NULL AND number = ? ORDER BY seq LIMIT ?"
            self.report.doubled += answers - 1
            places = (self._place(*found) for found in db.execute(query, (line, MOST_PLACES)))
            yield Finding("doubled", custom_id, line, tuple(places))

    def _foreign(self, db: sqlite3.Connection) -> Iterator[Finding]:
        for file, line, custom_id in db.execute(_FOREIGN):
            self.report.foreign += 1
            yield Finding("foreign", custom_id, None, (self._place(file, line),))

    def _place(self, file: int, line: int) -> Place:
        return Place(str(self._results[file]), line)


class _Unreadable(Exception):
    """No line of output."""


def lines_of(path: Path) -> Iterator[Sequence[Line | BadRow]]:
    """A file's lines that are not blank, block by block; one that is packed is unpacked.

    Raises:
        SetupError: it can't be opened.
    """
    splitter = LineSplitter(LONGEST_LINE_BYTES)
    with source.reading(path) as reader:
        try:
            for data in source.blocks(reader):
                yield splitter.feed(data)
        except source.UNREADABLE as error:
            yield [splitter.unreadable(source.why(error))]
        else:
            yield splitter.end()


def _first(blocks: Iterator[Sequence[Line | BadRow]], limit: int | None) -> Iterator[Sequence[Line | BadRow]]:
    """So many lines, where there is a limit."""
    left = limit
    for lines in blocks:
        yield lines if left is None else lines[:left]
        left = None if left is None else left - len(lines)
        if left is not None and left <= 0:
            return


def custom_id_of(line: Line | BadRow) -> str | None:
    """The id of a line of the input, where one can be read."""
    if isinstance(line, BadRow):
        return None
    try:
        row = wire.loads(line.data)
    except InvalidRequest:
        return None
    custom_id = row.get("custom_id") if isinstance(row, dict) else None
    return custom_id if isinstance(custom_id, str) and custom_id else None


def _answer(line: Line | BadRow) -> tuple[str | None, int | None, bytes]:
    """Of a line of output: its row's id, or else its row's number; and what tells it from others of the same id."""
    if isinstance(line, BadRow):
        raise _Unreadable(line.message)
    try:
        value = wire.loads(line.data)
    except InvalidRequest:
        raise _Unreadable("it is no whole JSON: torn, or written by something else") from None
    if not isinstance(value, dict) or not (value.get("response") or value.get("error")):
        raise _Unreadable("it holds neither a response nor an error")
    custom_id, error = value.get("custom_id"), value.get("error")
    if isinstance(custom_id, str) and custom_id:
        mark = hashlib.blake2b(wire.dumps(value.get("id")), digest_size=8).digest()
        return custom_id, None, mark
    message = error.get("message") if isinstance(error, dict) else None
    found = NUMBERED.match(message) if isinstance(message, str) else None
    return None, int(found[1]) if found else None, b""
