"""What a batch's ledger is told and tells."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Status(IntEnum):
    """How a row stands. A failed row has its line too: an error, or a refusal by the engine."""

    WAITING = 0
    ANSWERED = 1
    FAILED = 2


class OutFile(IntEnum):
    """Which file a row's line stands in."""

    OUT = 0
    ERR = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What holds for a whole batch, from its validation on. Times in ms since 1970."""

    batch_id: str
    source: str
    """The input as it was named."""
    readable: str
    """The file that rows are read from by their places: the input itself, or what it was spooled to."""
    size: int = 0
    """Of the input as named, in bytes; 0 of stdin."""
    mtime_ns: int = 0
    sha256: str = ""
    """Of the readable input, as hex."""
    rows: int = 0
    """Lines that are not blank, bad ones too: each gets a line of output."""
    bad: int = 0
    endpoint: str = ""
    model: str = ""
    judged: bool = True
    """Whether all lines were: a batch that was cancelled before can't go on."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What must not change when the batch is resumed; values are JSON's."""
    state: str = "validating"
    """`validating` until the rows are planned, then `running`, then how it ended."""
    created_ms: int = 0
    deadline_ms: int | None = None
    refused: int = 0
    """Rows that failed and would fail again, when the batch ended."""
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RowPlace:
    """One line of the input that is not blank. `start` and `length` are bytes of the readable input, no newline."""

    number: int
    start: int
    length: int
    custom_id: str | None = None
    key: bytes = b""
    """A chain of at most four hashes of 8 bytes, of the prompt's beginning."""
    cost: int = 0
    """Tokens, by estimate."""
    digest: bytes | None = None
    """The same for bodies that must have the same answer; None: the row must run itself."""
    bad: bool = False
    """It can't be run; its problem is kept with `Ledger.set_problems`."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A line whose id an earlier line has."""

    number: int
    first: int


@dataclass(frozen=True, slots=True)
class Todo:
    """A row as it is planned. `place` counts from 1 in the order of sending."""

    place: int
    number: int
    start: int
    length: int
    custom_id: str | None
    cost: int
    twin_of: int | None
    """The line whose answer is this row's too."""
    bad: bool
    generation: int
    """How often the row was taken back to be run anew; part of its job's id."""
    status: Status


@dataclass(frozen=True, slots=True)
class WrittenLine:
    """A row's line, as it was written: `start` and `length` in bytes, its newline counted."""

    number: int
    failed: bool
    file: OutFile
    start: int
    length: int
    tokens_in: int = 0
    tokens_out: int = 0
    queue_ms: int | None = None
    ttft_ms: int | None = None
    worker: str = ""
    """Label of the worker that ran it; empty when none did."""


@dataclass(frozen=True, slots=True)
class LinePlace:
    """Where a row's line stands in a file, in bytes, its newline counted."""

    number: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How a batch's rows stand."""

    rows: int
    answered: int
    failed: int
    """Bad rows with their error line are among them."""
    bad: int
    """Bad rows, whether their line stands yet or not."""
    twins: int
    deduped: int
    """Twins that have their original's answer."""
    tokens_in: int
    tokens_out: int

    @property
    def waiting(self) -> int:
        """Rows that have no line yet."""
        return self.rows - self.answered - self.failed
