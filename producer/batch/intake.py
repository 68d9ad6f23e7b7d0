"""Takes a batch's input in: one pass that finds every bad line and puts each row's place into the ledger."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from producer.batch import source
from producer.batch.judge import Judge, Judged, Rules
from producer.batch.ledger import Ledger
from producer.batch.lines import BadRow, Line, LineSplitter, longest_line
from producer.batch.records import Duplicate
from producer.batch.threads import in_thread
from protocol.errors import BatchInvalid, InputChanged, OutputFailed, Problem

MOST_PROBLEMS = 1_000
"""So many stand in an error; all stand in the ledger."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What an input holds."""

    rows: int
    """Lines that are not blank, bad ones too."""
    bad: int
    endpoint: str
    """The batch's; empty when no row can be run."""
    model: str
    unserved: int
    """The first line whose model nobody serves; 0 when there is none."""
    readable: str
    """The file that rows are read from by their places; empty when there is none."""
    size: int
    """Of the input as it was named, in bytes; 0 of a pipe."""
    mtime_ns: int
    sha256: str
    """Of the whole readable input, as hex; of a pipe, of what was read."""
    judged: bool
    """Whether all lines were: the batch was not cancelled meanwhile."""

    @property
    def runnable(self) -> int:
        """Lines that can be run."""
        return self.rows - self.bad


async def take_in(
    path: str | Path,
    ledger: Ledger,
    rules: Rules,
    *,
    spool: Path | None = None,
    limit: int | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    on_lines: Callable[[int], None] = lambda _: None,
) -> Intake:
    """Read an input once, in a thread, and put every row and every problem into a new ledger.

    A plain file is to be read in place later; what can be read only once, or is packed, is written to `spool` as it
    comes. A row is judged as a submit would judge it, but for what only the engine can know.

    Args:
        path: the input; `-` is stdin, `.gz` is unpacked.
        ledger: a new one.
        rules: what holds for all lines.
        spool: where the readable input is written if `path` can't be read in place; None: nowhere.
        limit: take only so many rows.
        cancelled: whether nothing will be run any more; then lines are only counted and named, which is faster.
        on_lines: told in the thread how many lines were taken so far.

    Raises:
        SetupError: the input can't be opened.
        InputChanged: somebody wrote to it meanwhile.
        OutputFailed: the disk is full.
    """
    stop, taker = threading.Event(), _Taker(ledger, rules, limit, cancelled, on_lines)
    return await in_thread(lambda: _take_in(Path(path), taker, spool, stop.is_set), stop)


def refusal(intake: Intake, ledger: Ledger, *, skip: bool) -> BatchInvalid | None:
    """Why a batch is not run at all; with `skip`, bad lines are no reason.

    An input without rows is, and so is one of whose models none is served: its workers may only not have started yet.
    """
    if intake.rows == 0:
        return BatchInvalid([Problem(1, "empty_file", "the input has no rows")])
    if not intake.bad or (skip and not (intake.unserved and intake.runnable == 0)):
        return None
    return BatchInvalid(ledger.problems(0, MOST_PROBLEMS), intake.bad)


def _take_in(path: Path, taker: "_Taker", spool: Path | None, stopped: Callable[[], bool]) -> Intake:
    before = source.stamp(path)
    readable = path if source.in_place(path) else spool
    copy = None if source.in_place(path) else spool
    with source.reading(path, stopped) as reader, _spooling(copy) as keep:
        digest = _pass(reader, taker, keep, stopped, to_end=source.repeatable(path))
    if source.stamp(path) != before:
        raise InputChanged(f"{path} was written to while it was read", "Begin anew once it is whole.")
    judge = taker.judge
    known = (judge.endpoint or "", judge.model, judge.unserved)
    return Intake(taker.rows, taker.bad, *known, str(readable or ""), *before, digest, judge.complete)


def _pass(
    reader: source.Reader, taker: "_Taker", keep: Callable[[bytes], None], stopped: Callable[[], bool], *, to_end: bool
) -> str:
    """All of it; its SHA-256. Once the taker is full, what can be read again is read on for that alone."""
    digest, splitter = hashlib.sha256(), LineSplitter(longest_line(taker.rules.max_body_bytes))
    try:
        for data in source.blocks(reader, stopped):
            digest.update(data)
            if not taker.full:
                keep(data)
                taker.take(splitter.feed(data))
            elif not to_end:
                break
    except source.UNREADABLE as error:
        digest.update(source.BROKEN)
        taker.take([splitter.unreadable(source.why(error))])
    else:
        taker.take(splitter.end())
    return digest.hexdigest()


@contextmanager
def _spooling(path: Path | None) -> Iterator[Callable[[bytes], None]]:
    """What to call with each block."""
    if path is None:
        yield lambda _: None
        return
    with _typed(path):
        file = path.open("wb")

    def keep(data: bytes) -> None:
        with _typed(path):
            file.write(data)
            file.flush()

    try:
        yield keep
    finally:
        # What could not be written before can't be written now either, and was told then.
        with suppress(OSError):
            file.close()


@contextmanager
def _typed(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputFailed(f"{path} can't be written: {error.strerror}") from None


class _Taker:
    """Judges lines and puts them into the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        rules: Rules,
        limit: int | None,
        cancelled: Callable[[], bool],
        on_lines: Callable[[int], None],
    ) -> None:
        self._ledger = ledger
        self._limit = limit
        self._cancelled = cancelled
        self._on_lines = on_lines
        self.rules = rules
        self.judge = Judge(rules, self._is_new)
        self.rows = self.bad = 0
        self._judged: list[Judged] = []
        """Those of the block that is being taken; the ledger does not know them yet."""

    @property
    def full(self) -> bool:
        return self.rows == self._limit

    def take(self, lines: Sequence[Line | BadRow]) -> None:
        if self._limit is not None:
            lines = lines[: self._limit - self.rows]
        if not lines:
            return
        self._judged = judged = []
        judge = self.judge.glance if self._cancelled() else self.judge.judge
        for line in lines:
            judged.append(judge(line))  # noqa: PERF401 - it is looked at meanwhile
        problems = {one.problem.line: one.problem for one in judged if one.problem}
        for duplicate in self._ledger.add([one.place for one in judged]):
            fault = problems.get(duplicate.number)
            problems[duplicate.number] = replace(fault, custom_id=None) if fault else _duplicate(duplicate)
        if problems:
            self._ledger.set_problems(problems.values())
        self.rows += len(lines)
        self.bad += len(problems)
        self._on_lines(self.rows)

    def _is_new(self, custom_id: str) -> bool:
        return not any(one.place.custom_id == custom_id for one in self._judged) and not self._ledger.has(custom_id)


def _duplicate(line: Duplicate) -> Problem:
    message = f"custom_id: line {line.first} has the same"
    return Problem(line.number, "duplicate_custom_id", message, "custom_id")
