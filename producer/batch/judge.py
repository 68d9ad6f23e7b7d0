"""Says of each line of a batch's input whether it can be run, by the rules of a submit. No files, no Redis."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from producer import bodies, estimate
from producer.batch.lines import BadRow, Line, Row, known_id, parse
from producer.batch.records import RowPlace
from protocol.errors import InvalidRequest, Problem
from protocol.messages import Endpoint
from protocol.wire import JsonObject

KEY_CHARS = (256, 1024, 4096, 16384)
"""Rows are grouped by so much of their prompts' beginnings: each is 8 bytes of a row's key."""
DIGEST_BYTES = 16
MOST_NAMED, LONGEST_NAMED = 5, 64
"""So many models are named to who asked for another, and so many characters of each name."""
_FIELD = re.compile(r"[a-z_]+(\.\w+)*")


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for all lines of an input."""

    max_body_bytes: int
    model: str = ""
    """Stands in each body in place of what it names; empty: what the first row names that can be run."""
    endpoint: Endpoint | None = None
    """None: the first row's that can be run."""
    dedup: bool = False
    """Whether rows are to be compared."""
    served: Collection[str] | None = None
    """Models that a worker ever registered; None: nobody was asked."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A line as it goes into the ledger, and what is wrong with it."""

    place: RowPlace
    problem: Problem | None = None


class Judge:
    """Judges the lines of one input, in their order."""

    def __init__(self, rules: Rules, is_new: Callable[[str], bool] = lambda _: True) -> None:
        """Nothing is known of the input yet but what `rules` say; `is_new`: whether no earlier line has an id.

        That is asked until a row could be run, which only a bad line can precede: a duplicate of one can't be run.
        """
        self._rules, self._is_new = rules, is_new
        self.endpoint = rules.endpoint
        self.model = rules.model
        self.first = 0
        """The first line that can be run: it gave what the rules did not say. 0: there was none yet."""
        self.unserved = 0
        """The first line whose model nobody serves; 0: there was none yet."""
        self.complete = True
        """Whether no line was only glanced at."""

    def judge(self, line: Line | BadRow) -> Judged:
        """One line that is not blank."""
        row = _read(line) if isinstance(line, Line) else line
        if isinstance(row, BadRow):
            return _bad(row)
        try:
            return Judged(self._placed(line, row))
        except _Unfit as unfit:
            return _bad(BadRow(row.number, row.custom_id, unfit.code, str(unfit), unfit.param))

    def glance(self, line: Line | BadRow) -> Judged:
        """A line of a batch that was cancelled meanwhile: where it stands, and its id, for its line of output."""
        self.complete = False
        if isinstance(line, BadRow):
            return _bad(line)
        return Judged(RowPlace(line.number, line.start, len(line.data), known_id(line.data)))

    def _placed(self, line: Line | BadRow, row: Row) -> RowPlace:
        if self.endpoint not in (None, row.endpoint):
            raise _Unfit("url_mismatch", f"url: it must be the batch's, {self.endpoint}", "url")
        body = row.body | {"model": self._rules.model} if self._rules.model else row.body
        self._check(row.endpoint, body)
        if body["model"] != (self.model or body["model"]):
            raise _Unfit("model_mismatch", f"body.model: line {self.first} names another", "body.model")
        if self._rules.served is not None and body["model"] not in self._rules.served:
            self.unserved = self.unserved or row.number
            raise _Unfit("unknown_model", f"body.model: {unserved(body['model'], self._rules.served)}", "body.model")
        if not self.first and self._is_new(row.custom_id):
            self.endpoint, self.model, self.first = row.endpoint, body["model"], row.number
        guess = estimate.estimate(row.endpoint, body, "")
        start, length = (line.start, len(line.data)) if isinstance(line, Line) else (0, 0)
        cost = guess.prompt_tokens + guess.output_tokens
        return RowPlace(
            row.number, start, length, row.custom_id, _key(row.endpoint, body), cost, self._digest(row, body)
        )

    def _check(self, endpoint: Endpoint, body: JsonObject) -> None:
        if _odd_seed(body.get("seed")):
            # Only the engine can judge it: the row is refused when it is submitted, the file is not.
            body = body | {"seed": None}
        try:
            bodies.encoded(endpoint, body, self._rules.max_body_bytes)
        except InvalidRequest as error:
            raise _Unfit(error.code, *in_row(error.message)) from None

    def _digest(self, row: Row, body: JsonObject) -> bytes | None:
        """Only at temperature 0 must equal bodies have equal answers."""
        if not self._rules.dedup or body.get("temperature") != 0:
            return None
        return bytes.fromhex(bodies.digest(row.endpoint, body))[:DIGEST_BYTES]


def in_row(message: str) -> tuple[str, str]:
    """What is said of a body, as it is said of a row, and the row's field."""
    field, colon, _ = message.partition(": ")
    return (f"body.{message}", f"body.{field}") if colon and _FIELD.fullmatch(field) else (message, "body")


def unserved(model: str, served: Collection[str]) -> str:
    """What is said of a model that nobody serves: its name, and those of some that are served."""
    names = [_short(name) for name in sorted(served)[:MOST_NAMED]]
    more = f" and {len(served) - len(names)} more" if len(served) > len(names) else ""
    known = f"known: {', '.join(names)}{more}" if names else "nor any other"
    return f"no worker ever registered {_short(model)}; {known}"


def _short(name: str) -> str:
    """A name as a line of text bears it: people write anything there."""
    printable = "".join(character if character.isprintable() else "�" for character in name[:LONGEST_NAMED])
    return printable + "…" * (len(name) > LONGEST_NAMED)


class _Unfit(Exception):
    def __init__(self, code: str, message: str, param: str) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


def _read(line: Line) -> Row | BadRow:
    row = parse(line)
    if isinstance(row, Row) or b'"seed"' not in line.data:
        return row
    wide = parse(line, wide_integers=True)
    return wide if isinstance(wide, Row) and _odd_seed(wide.body.get("seed")) else row


def _odd_seed(seed: object) -> bool:
    """Whether it is a whole number that int64 does not hold; one of over 64 bits is read as a float, and rounded."""
    if isinstance(seed, float):
        return abs(seed) >= bodies.INT64
    return isinstance(seed, int) and not -bodies.INT64 <= seed < bodies.INT64


def _key(endpoint: Endpoint, body: JsonObject) -> bytes:
    texts = estimate.texts_of(endpoint, body)
    return bytes.fromhex("".join(estimate.prefix_hashes("", "", texts, KEY_CHARS)))


def _bad(row: BadRow) -> Judged:
    place = RowPlace(row.number, 0, 0, row.custom_id, bad=True)
    return Judged(place, Problem(row.number, row.code, row.message, row.param, row.custom_id))
