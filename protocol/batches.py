"""Batches as a service: their states as a transition table, what describes one, and OpenAI's view of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from protocol.errors import InvalidRequest, UnknownBatch
from protocol.handle import check_name
from protocol.messages import Endpoint, Message, Tokens
from protocol.states import Priority
from protocol.wire import JsonObject

_ID = re.compile(r"batch_[a-z0-9_-]{1,58}\Z")
_FILE_ID = re.compile(r"file-[A-Za-z0-9_-]{1,59}\Z")
MOST_PAIRS, LONGEST_KEY, LONGEST_VALUE = 16, 64, 512
"""Of a batch's metadata, as OpenAI has them."""
MOST_BATCHES = 10_000
"""So many batches one tenant may have, ended ones that are still kept among them."""


class BatchStatus(StrEnum):
    """Where a batch is: on its way, or at one of four ends."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """True when it has ended."""
        return not BATCH_TRANSITIONS[self]


_EARLY_ENDS = frozenset({BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLING})
BATCH_TRANSITIONS: dict[BatchStatus, frozenset[BatchStatus]] = {
    BatchStatus.VALIDATING: _EARLY_ENDS | {BatchStatus.IN_PROGRESS},
    BatchStatus.IN_PROGRESS: _EARLY_ENDS | {BatchStatus.FINALIZING},
    BatchStatus.FINALIZING: frozenset({BatchStatus.COMPLETED}),
    BatchStatus.CANCELLING: frozenset({BatchStatus.CANCELLED}),
    BatchStatus.COMPLETED: frozenset(),
    BatchStatus.FAILED: frozenset(),
    BatchStatus.EXPIRED: frozenset(),
    BatchStatus.CANCELLED: frozenset(),
}
"""Which states may follow each state; `functions/_batch.lua` has the same table, and a test holds them together."""


@dataclass(frozen=True, slots=True)
class BatchName:
    """A batch's full name."""

    tenant: str
    id: str

    @property
    def ref(self) -> str:
        """`tenant:id`, its name among all tenants'."""
        return f"{self.tenant}:{self.id}"

    @classmethod
    def of(cls, tenant: str, batch_id: str) -> Self:
        """Check both.

        Raises:
            InvalidId: the tenant's name is malformed.
            UnknownBatch: no batch can have this id.
        """
        if not _ID.match(batch_id):
            raise UnknownBatch("there is no such batch", "A batch's id begins with batch_.")
        return cls(check_name("tenant", tenant), batch_id)

    @classmethod
    def parse(cls, ref: str) -> Self:
        """Read `tenant:id`; raises as `of`."""
        tenant, _, batch_id = ref.partition(":")
        return cls.of(tenant, batch_id)


def is_file_id(text: object) -> bool:
    """Whether it may name a file of the store: never a path."""
    return isinstance(text, str) and bool(_FILE_ID.match(text))


def checked_metadata(metadata: Mapping[Any, Any]) -> dict[str, str]:
    """The metadata of a batch, as OpenAI allows it.

    Raises:
        InvalidRequest: too many pairs, a key or value that is too long, or one that is no text.
    """
    if len(metadata) > MOST_PAIRS:
        raise InvalidRequest(f"metadata: at most {MOST_PAIRS} pairs")
    for key, value in metadata.items():
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
            raise InvalidRequest(f"metadata: a key is a text of 1 to {LONGEST_KEY} characters")
        if not isinstance(value, str) or len(value) > LONGEST_VALUE:
            raise InvalidRequest(f"metadata: a value is a text of at most {LONGEST_VALUE} characters")
    return {str(key): str(value) for key, value in metadata.items()}


class BatchSpec(Message):
    """What never changes in a batch."""

    input_file_id: str
    endpoint: Endpoint
    endpoint_given: bool = True
    """Whether all rows must be for it. If not, it is a guess: that of the first valid row counts."""
    completion_window: str = "24h"
    """As it was asked for."""
    window_s: Annotated[float, Field(gt=0, le=366 * 86_400)] = 86_400.0
    """The same in seconds, from its creation."""
    metadata: dict[str, str] = Field(default_factory=dict)
    priority: Priority = Priority.MEDIUM
    model: str | None = None
    """Run all rows on this model, whatever they name."""
    models: tuple[str, ...] = ()
    """Rows that run on another are invalid; empty: all may be."""
    on_invalid: Literal["fail", "skip"] = "fail"
    dedup: bool = False
    order: Literal["input", "completion"] = "completion"
    """Of the lines in the output and in the errors."""
    max_errors: Annotated[int, Field(ge=0)] | None = None
    notify: bool = True
    """Whether its end is told to the runner's webhook, where it has one."""


class BatchCounts(Message):
    """Rows. Those that never ran because the batch was cancelled or expired are in `total` alone."""

    total: Tokens = 0
    completed: Tokens = 0
    failed: Tokens = 0


class BatchError(Message):
    """What is wrong with the input; `line` is the physical one, None for the whole file."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchUsage(Message):
    """Tokens of all rows that were answered."""

    input_tokens: Tokens = 0
    cached_tokens: Tokens = 0
    """Of `input_tokens`: those that the engine had in its cache, where it tells."""
    output_tokens: Tokens = 0


class BatchRecord(Message):
    """A batch as it stands."""

    name: BatchName
    spec: BatchSpec
    status: BatchStatus
    times_ms: dict[BatchStatus, int]
    """When each state was first reached, in ms of Redis's clock."""
    counts: BatchCounts = BatchCounts()
    errors: tuple[BatchError, ...] = ()
    output_file_id: str | None = None
    error_file_id: str | None = None
    model: str | None = None
    usage: BatchUsage | None = None
    takes: int = 0
    """How often a runner took it."""

    @property
    def expires_ms(self) -> int:
        """When it expires, in ms of Redis's clock."""
        return self.times_ms[BatchStatus.VALIDATING] + round(self.spec.window_s * 1000)

    def as_json(self) -> JsonObject:
        """OpenAI's `Batch`; times in whole seconds."""
        spec, times = self.spec, self.times_ms
        seconds = {status: times[status] // 1000 if status in times else None for status in BatchStatus}
        errors = {"object": "list", "data": [error.model_dump() for error in self.errors]}
        return {
            "id": self.name.id,
            "object": "batch",
            "endpoint": spec.endpoint,
            "model": self.model,
            "errors": errors if self.errors else None,
            "input_file_id": spec.input_file_id,
            "completion_window": spec.completion_window,
            "status": str(self.status),
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": seconds[BatchStatus.VALIDATING],
            "expires_at": self.expires_ms // 1000,
            **{f"{status}_at": seconds[status] for status in BatchStatus if status is not BatchStatus.VALIDATING},
            "request_counts": self.counts.model_dump(),
            "metadata": spec.metadata or None,
            "usage": _usage(self.usage) if self.usage else None,
        }


def _usage(usage: BatchUsage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        # What was thought and not said: no engine tells it for a row.
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


@dataclass(frozen=True, slots=True)
class BatchChange:
    """What an owner writes: a new state, or none, and fields of the record that are not None."""

    status: BatchStatus | None = None
    counts: BatchCounts | None = None
    usage: BatchUsage | None = None
    errors: tuple[BatchError, ...] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    model: str | None = None

    def fields(self) -> dict[str, Any]:
        """By their names in the record."""
        names = ("counts", "usage", "errors", "output_file_id", "error_file_id", "model")
        return {name: value for name in names if (value := getattr(self, name)) is not None}
