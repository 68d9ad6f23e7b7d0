"""What is asked of a batch, and checked before anything is touched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self, get_args

from producer import requests
from producer.requests import Deadline, JobRequest
from protocol.errors import InvalidRequest
from protocol.messages import Endpoint
from protocol.states import Priority

WINDOW = 512
"""Rows in Redis at once, unless another number is asked for."""
Order = Literal["input", "completion"]
OnInvalid = Literal["fail", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The options of `run_batch`."""

    batch_id: str = ""
    """Made up where it is empty; a batch that is resumed keeps its own."""
    model: str = ""
    """All rows run on it, whatever they name."""
    models: Sequence[str] = ()
    """Rows that run on another are invalid; empty: there are none such. It counts when the batch begins."""
    endpoint: Endpoint | None = None
    """All rows must be for it; that of the first valid row by default."""
    priority: Priority | str = "medium"
    deadline: Deadline | None = None
    """Of the whole batch, as of one job; a batch that is resumed keeps its own unless there is a new one."""
    window: int = WINDOW
    """How many rows are in Redis at once."""
    limit: int | None = None
    """Take only so many rows."""
    order: Order = "completion"
    """Of the output lines; `input`: the output is there at the end."""
    on_invalid: OnInvalid = "fail"
    """What becomes of lines that are no requests: the batch is refused, or they get an error line."""
    dedup: bool = False
    """Rows with equal bodies at temperature 0 run once, and each gets the answer."""
    max_errors: int | None = None
    """Give up once more rows have failed; lines that are no requests are not counted."""
    resume: bool = False
    """Go on with a run that broke off; begin where there was none."""
    overwrite: bool = False
    """Replace outputs that exist."""
    durable: bool = False
    """See `Fleet.submit`; for each row."""
    stream: bool = False
    """Each row's tokens can be followed while they are made; the output lines are the same."""
    keep: bool = False
    """When the task is cancelled, the rows that are under way go on: somebody else will resume the batch."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Those that are among `given`, checked: see `check`."""
        options = cls(**{name: given[name] for name in cls.__dataclass_fields__} | {"model": given["model"] or ""})
        options.check()
        return options

    def check(self) -> None:
        """Raises where a value breaks a rule.

        Raises:
            InvalidRequest: one does.
        """
        for name, least in (("limit", 0), ("max_errors", 0), ("window", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidRequest(f"{name}: it must be at least {least}")
        for name, words in (("order", get_args(Order)), ("on_invalid", get_args(OnInvalid))):
            if getattr(self, name) not in words:
                raise InvalidRequest(f"{name}: it must be {' or '.join(words)}")
        if self.resume and self.overwrite:
            raise InvalidRequest("resume: a batch can't be resumed and replaced")
        check_priority(self.priority)
        self.deadline_ms()

    def deadline_ms(self) -> int | None:
        """When the batch expires, in ms since 1970; None: never."""
        if self.deadline is None:
            return None
        now = datetime.now(UTC)
        return int((now.timestamp() + requests.deadline_s(self.deadline, now)) * 1000)

    def fixed(self, errors: object) -> Mapping[str, Any]:
        """What can't change when the batch is resumed, as JSON values."""
        return {
            "model": self.model,
            "limit": self.limit,
            "order": self.order,
            "on_invalid": self.on_invalid,
            "dedup": self.dedup,
            "errors": None if errors is None else str(errors),
        }


def check_priority(priority: Priority | str) -> Priority:
    """A batch's priority as a member.

    Raises:
        InvalidRequest: there is no such one, or it is that of online traffic, which batches never push out.
    """
    found = requests.priority_of(JobRequest(priority=priority))
    if found is Priority.HIGH:
        raise InvalidRequest("priority: a batch's is medium or low")
    return found
