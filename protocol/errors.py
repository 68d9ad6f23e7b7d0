"""Typed errors. Each class has a stable `code`: what machines match on, in JSON, logs and exit codes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from protocol.allowance import Allowance


class FleetError(Exception):
    """Base of all errors that tokenfleet raises on purpose.

    Attributes:
        code: stable identifier, never renamed.
        hint: what the reader can do about it; empty when the message says it all.
    """

    code: ClassVar[str] = "fleet_error"

    def __init__(self, message: str, hint: str = "") -> None:
        """Keep the message for people and the hint apart, so that front ends can lay them out."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """The message, then the hint."""
        return f"{self.message.rstrip('.')}. {self.hint}" if self.hint else self.message


class InvalidRequest(FleetError):
    """The request's body or options break a rule that a schema can show; nothing was stored."""

    code = "invalid_request"


class InvalidJson(InvalidRequest):
    """Not JSON, or JSON that two readers could take for two things; nothing was stored."""

    code = "invalid_json"


class InvalidId(InvalidRequest):
    """A pool, tenant, job or stream name holds characters that could reach another key."""

    code = "invalid_id"


class TooLarge(InvalidRequest):
    """The request's body is over the size limit; nothing was stored."""

    code = "too_large"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a line of a batch file is no request. The message repeats nothing of it but the name of a model."""

    line: int
    """Of the file, from 1."""
    code: str
    message: str
    param: str | None = None
    """The field that is wrong, such as `body.max_tokens`."""
    custom_id: str | None = None
    """The line's own, where one can be read and no earlier line had it: it stands in the error line."""


class BatchInvalid(InvalidRequest):
    """A batch file has bad lines; nothing of it was run.

    Attributes:
        problems: the first of them, in the file's order.
        total: how many there are.
    """

    code = "invalid_batch"

    def __init__(self, problems: Sequence[Problem], total: int | None = None) -> None:
        """By default `problems` are all there are."""
        self.problems = tuple(problems)
        self.total = len(self.problems) if total is None else total
        codes = {problem.code for problem in problems}
        if "empty_file" in codes:
            super().__init__("the input has no rows; nothing was run")
            return
        hint = (
            "Run the other lines with --on-invalid skip (on_invalid='skip'); `tokenfleet batch run --help` shows a row."
        )
        if "model_mismatch" in codes:
            hint = f"Run all rows on one model with --model M (model='M'). {hint}"
        super().__init__(f"{self.total} line{'s' * (self.total != 1)} of the input can't be run; nothing was run", hint)


class UnknownModel(FleetError):
    """No worker ever registered this model; a model whose workers are away is queued instead."""

    code = "unknown_model"


class QueueFull(FleetError):
    """The lane, or the tenant's half of it, is full; nothing was stored. Try again later."""

    code = "queue_full"


class QuotaExceeded(QueueFull):
    """The tenant has as many jobs waiting, or has spent as many tokens, as it may; nothing was stored.

    Attributes:
        retry_after_s: when to try again.
    """

    code = "quota_exceeded"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        """Say when to try again, in the hint too."""
        super().__init__(message, f"Nothing was stored; try again in {retry_after_s:.1f} s.")
        self.retry_after_s = retry_after_s


class RateLimited(QuotaExceeded):
    """An API key's limit is reached; nothing was stored, and nothing taken from any of its limits.

    Attributes:
        kind: which limit: `requests`, `tokens`, `jobs`, `bytes` or `uploads`.
        limit: how high it is: a minute, or at once.
        remaining: how much of it is left: less than the job needs.
        retry_after_s: when to try again.
        allowance: what is left of the limits a minute.
    """

    code = "rate_limited"

    def __init__(
        self,
        kind: str,
        limit: int = 0,
        remaining: int = 0,
        retry_after_s: float = 1.0,
        allowance: Allowance | None = None,
    ) -> None:
        """Name the limit."""
        per = {"requests": "requests a minute", "tokens": "tokens a minute"}
        per |= {"jobs": "jobs at once", "uploads": "uploads at once"}
        what = per.get(kind, "bytes of requests at once")
        super().__init__(f"this key's limit of {limit} {what} is reached", retry_after_s)
        self.kind, self.limit, self.remaining = kind, limit, remaining
        self.allowance = allowance or Allowance()


class ConflictingId(FleetError):
    """The id is taken by a job with another body."""

    code = "conflicting_id"


class UnknownJob(FleetError):
    """No such job: never submitted, another tenant's, or forgotten."""

    code = "unknown_job"


class UnknownBatch(FleetError):
    """No such batch: never created, another tenant's, or deleted."""

    code = "unknown_batch"


class UnknownFile(FleetError):
    """No such file in the store: never put there, another tenant's, or deleted."""

    code = "unknown_file"


class BatchActive(FleetError):
    """The batch has not ended yet; cancel it first."""

    code = "batch_active"


class NotDead(FleetError):
    """No such job was set aside, or it is no more."""

    code = "not_dead"


class UnknownKey(FleetError):
    """No API key has this id, or it is another tenant's."""

    code = "unknown_key"


class UnknownWorker(FleetError):
    """No worker of this id or label holds a lease."""

    code = "unknown_worker"


class AmbiguousWorker(FleetError):
    """More than one worker has this label, or an id that begins like this."""

    code = "ambiguous_worker"


class CommandRefused(FleetError):
    """The worker did not do what it was told, and says why."""

    code = "command_refused"


class StoreFull(FleetError):
    """Redis is at its memory limit: it refuses new work and finishes what it has. Or its disk is full: it waits."""

    code = "store_full"


class StoreUnavailable(FleetError):
    """Redis does not answer."""

    code = "store_unavailable"


class NotDurable(FleetError):
    """The job is submitted, but its write was not known to be safe in time.

    Attributes:
        handle: the job's, as text.
    """

    code = "not_durable"

    def __init__(self, handle: str) -> None:
        """Name the job: its id may be one that the caller has not chosen."""
        message = f"the job {handle} is submitted, but was not known to be safe in time"
        super().__init__(message, "It stays submitted; submit the same id again to wait once more.")
        self.handle = handle


class LibraryMissing(FleetError):
    """The function library is not loaded; the scheduler loads it."""

    code = "library_missing"


class NotAllowed(FleetError):
    """The Redis user lacks a right that the call needs; nothing was written."""

    code = "not_allowed"


class ProtocolViolation(FleetError):
    """Redis answered something that this version does not understand."""

    code = "protocol_violation"


class Unreadable(ProtocolViolation):
    """A key holds what this version can't read: it was written by hand, or by a version that is gone."""

    code = "unreadable"


class WrongType(Unreadable):
    """A key holds something else than this version puts there; nothing was read or written."""

    code = "wrong_type"


class WaitTimeout(FleetError):
    """The wait ended before what it waited for: a job, or a worker's answer. That goes on."""

    code = "wait_timeout"


class OutputFailed(FleetError):
    """What was to be written could not be: the disk is full, or its quota."""

    code = "output_failed"


class SetupError(FleetError):
    """Something that must be installed or configured on this machine is not."""

    code = "setup_error"


class InputChanged(SetupError):
    """A batch's input is not what it was when the batch began."""

    code = "input_changed"


class NotTrusted(SetupError):
    """TLS with Redis fails: a certificate is not accepted, here or there."""

    code = "not_trusted"
