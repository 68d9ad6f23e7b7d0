"""The rows in a batch's state file: which there are, in which order they are sent, and where their lines stand."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from producer.batch import ledger_schema as schema
from producer.batch.records import (
    Counts,
    Duplicate,
    LinePlace,
    OutFile,
    RowPlace,
    Status,
    Todo,
    WrittenLine,
)
from producer.batch.state_file import BLOCK_ROWS, StateFile
from protocol import wire
from protocol.errors import Problem

_TODO = "SELECT place, number, start, length, custom_id, cost, twin_of, bad, generation, status FROM work"

_WAITING = (
    "status = 0, (file, line_start, line_length, tokens_in, tokens_out, queue_ms, ttft_ms)"
    " = (NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
)


class Ledger(StateFile):
    """One batch's rows in one SQLite file, of which no more than a page is held in memory.

    Use: `create`, then `add` and `set_problems` in blocks, then `plan` once, then `todo` and `done` until nothing
    waits. After a crash `open` goes on.
    """

    # Intake: before `plan` only.

    def add(self, rows: Sequence[RowPlace]) -> list[Duplicate]:
        """Add lines of the input, in their order; those whose id an earlier line has are kept as bad and without id."""
        with self._writing() as db:
            first = _first_lines(db, [row.custom_id for row in rows if row.custom_id is not None])
            values, duplicates = [], []
            for row in rows:
                custom_id, bad = row.custom_id, row.bad
                if custom_id is not None and (earlier := first.setdefault(custom_id, row.number)) != row.number:
                    duplicates.append(Duplicate(row.number, earlier))
                    custom_id, bad = None, True
                values.append((row.number, row.start, row.length, custom_id, row.key, row.cost, row.digest, bad))
            db.executemany("INSERT INTO intake.rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        return duplicates

    def has(self, custom_id: str) -> bool:
        """Whether an added line has this id."""
        with self._reading() as db:
            return bool(_first_lines(db, [custom_id]))

    def set_problems(self, problems: Iterable[Problem]) -> None:
        """Keep why lines are bad; each must be added as bad, or be one of the duplicates."""
        values = [(p.line, p.custom_id, p.code, p.message, p.param) for p in problems]
        with self._writing() as db:
            db.executemany("INSERT OR REPLACE INTO problems VALUES (?, ?, ?, ?, ?)", values)

    def plan(self, *, group: bool, dedup: bool) -> None:
        """Put the rows into the order of sending; once, after the last `add`.

        Bad rows come first: nothing is sent for them. Then, with `group`, rows that share the beginning of their
        prompts stand together, and inside such a group dear ones alternate with cheap ones; without, the input's
        order. With `dedup` the rows of one digest are twins of their first: only that one is sent, and they stand
        right behind it. Afterwards it takes no rows, and only this can be resumed: set `state` in the facts.
        """
        with self._writing() as db:
            for statement in schema.planning(group=group, dedup=dedup):
                db.execute(statement)
        self._drop_intake()

    # The run.

    def todo(self, after: int, most: int) -> list[Todo]:
        """At most `most` rows to send, behind place `after` (0: all): without a line, neither bad nor a twin."""
        where = "WHERE place > ? AND status = 0 AND NOT bad AND twin_of IS NULL ORDER BY place LIMIT ?"
        return self._todos(where, (after, most))

    def unfinished(self, after: int, most: int) -> list[Todo]:
        """At most `most` rows that have no line, behind place `after`; bad ones and twins are among them."""
        return self._todos("WHERE place > ? AND status = 0 ORDER BY place LIMIT ?", (after, most))

    def rows(self, numbers: Iterable[int]) -> list[Todo]:
        """The rows of these lines of the input, in their order; unknown ones are left out."""
        return self._todos(
            "WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number", (wire.dumps(list(numbers)).decode(),)
        )

    def twins(self, number: int, after: int, most: int) -> list[Todo]:
        """At most `most` rows, behind place `after`, that have no line yet and get the answer of row `number`."""
        # By place: the index has it, so that each page begins where the last one ended.
        where = "WHERE twin_of = ? AND place > ? AND status = 0 ORDER BY place LIMIT ?"
        return self._todos(where, (number, after, most))

    def stranded(self, after: int, most: int) -> list[Todo]:
        """Twins without a line whose original has one, behind place `after`: a crash came between the two."""
        done = "SELECT 1 FROM work first WHERE first.number = work.twin_of AND first.status > 0"
        where = f"WHERE place > ? AND twin_of IS NOT NULL AND status = 0 AND EXISTS ({done}) ORDER BY place LIMIT ?"
        return self._todos(where, (after, most))

    def problems(self, after: int, most: int) -> list[Problem]:
        """At most `most` problems, of lines above `after`, in the input's order."""
        names = "line, code, message, param, custom_id"
        with self._reading() as db:
            found = db.execute(f"SELECT {names} FROM problems WHERE line > ? ORDER BY line LIMIT ?", (after, most))
            return [Problem(*row) for row in found]

    def done(self, lines: Sequence[WrittenLine]) -> int:
        """Keep that lines were written: call it after they are safe in their file. How many rows had none before.

        A row that has its line already keeps that one.
        """
        values = [_values(line) for line in lines]
        columns = "status, file, line_start, line_length, tokens_in, tokens_out, queue_ms, ttft_ms"
        jobs = Counter(line.worker for line in lines if line.worker)
        with self._writing() as db:
            update = f"UPDATE work SET ({columns}) = (?, ?, ?, ?, ?, ?, ?, ?) WHERE number = ? AND status = 0"
            count = db.executemany(update, values).rowcount
            more = "INSERT INTO workers VALUES (?, ?) ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs"
            db.executemany(more, jobs.items())
        return max(count, 0)

    # Counting, resuming, retrying.

    def counts(self) -> Counts:
        """How the rows stand; reads all of them, a second for some millions."""
        sums = "count(*), total(status = 1), total(status = 2), total(bad), count(twin_of)"
        more = "total(twin_of IS NOT NULL AND status > 0), total(tokens_in), total(tokens_out)"
        with self._reading() as db:
            row = db.execute(f"SELECT {sums}, {more} FROM work").fetchone()
        return Counts(*map(int, row))

    def jobs_by_worker(self) -> dict[str, int]:
        """How many rows each worker's label ran."""
        with self._reading() as db:
            return dict(db.execute("SELECT label, jobs FROM workers"))

    def waits(self, kind: Literal["queue_ms", "ttft_ms"]) -> Iterator[tuple[int, int]]:
        """Times in ms and how many rows had each, sorted: enough for any percentile."""
        yield from self._stream(f"SELECT {kind}, count(*) FROM work WHERE {kind} IS NOT NULL GROUP BY 1 ORDER BY 1")

    def places(self, file: OutFile, order: Literal["input", "file"]) -> Iterator[LinePlace]:
        """Where the lines of one file stand: in the input's order, or as they stand. Write nothing while it runs."""
        # The plus has the rows sorted: by its index of numbers SQLite would look up each alone, all over the file.
        by = "+number" if order == "input" else "line_start"
        query = f"SELECT number, line_start, line_length FROM work WHERE file = ? ORDER BY {by}"
        for row in self._stream(query, file):
            yield LinePlace(*row)

    def written(self, numbers: Iterable[int]) -> Iterator[tuple[OutFile, LinePlace]]:
        """Where the lines of these rows stand; those that have none are left out."""
        which = "number IN (SELECT value FROM json_each(?)) AND status > 0"
        query = f"SELECT file, number, line_start, line_length FROM work WHERE {which}"
        for file, *place in self._stream(query, wire.dumps(list(numbers)).decode()):
            yield OutFile(file), LinePlace(*place)

    def last_place(self, file: OutFile) -> int:
        """Bytes of a file up to the end of the last line that is known; what stands behind is not known yet."""
        with self._reading() as db:
            query = "SELECT max(line_start + line_length) FROM work WHERE file = ?"
            return db.execute(query, (file,)).fetchone()[0] or 0

    def last_line(self, file: OutFile, size: int) -> tuple[Todo, LinePlace] | None:
        """The row whose line is the last in the first `size` bytes of a file, and where it stands there."""
        where = "WHERE file = ? AND line_start + line_length <= ? ORDER BY line_start DESC LIMIT 1"
        for row in self._todos(where, (file, size)):
            return row, next(place for _, place in self.written([row.number]))
        return None

    def cut(self, file: OutFile, size: int) -> int:
        """Rows whose lines do not stand whole in the first `size` bytes wait again; how many. A power cut took them."""
        where = "file = ? AND line_start + line_length > ?"
        with self._writing() as db:
            return db.execute(f"UPDATE work SET {_WAITING} WHERE {where}", (file, size)).rowcount

    def move(self, file: OutFile, places: Iterable[LinePlace]) -> None:
        """Lines stand elsewhere now, in `file`: their files were written anew."""
        values = ((file, place.start, place.length, place.number) for place in places)
        with self._writing() as db:
            columns = "file, line_start, line_length"
            db.executemany(f"UPDATE work SET ({columns}) = (?, ?, ?) WHERE number = ? AND status > 0", values)

    def retry_failed(self) -> int:
        """Failed rows that are not bad wait again, as their next generation; how many.

        Their lines must go from the files: write anew what `places` names then, and tell `move`.
        """
        update = f"UPDATE work SET {_WAITING}, generation = generation + 1 WHERE status = 2 AND NOT bad"
        with self._writing() as db:
            return db.execute(update).rowcount

    def _todos(self, where: str, values: Sequence[Any]) -> list[Todo]:
        with self._reading() as db:
            found = db.execute(f"{_TODO} {where}", values)
            return [Todo(*(*row[:7], bool(row[7]), row[8], Status(row[9]))) for row in found]


def _first_lines(db: sqlite3.Connection, names: Sequence[str]) -> dict[str, int]:
    """The lines that have these ids, of those that are there."""
    found: dict[str, int] = {}
    for begin in range(0, len(names), BLOCK_ROWS):
        block = names[begin : begin + BLOCK_ROWS]
        # Not as one JSON text, as for numbers: SQLite reads an escaped NUL as the text's end.
        marks = ", ".join("?" * len(block))
        found |= db.execute(f"SELECT custom_id, number FROM intake.rows WHERE custom_id IN ({marks})", block)
    return found


def _values(line: WrittenLine) -> tuple[object, ...]:
    status = Status.FAILED if line.failed else Status.ANSWERED
    tokens, waits = (line.tokens_in, line.tokens_out), (line.queue_ms, line.ttft_ms)
    return (status, line.file, line.start, line.length, *tokens, *waits, line.number)
