"""What is looked up of batches, and the one thing that needs no function: a webhook that was told."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from protocol import keys, reads, wire
from protocol.batches import (
    BatchCounts,
    BatchError,
    BatchName,
    BatchRecord,
    BatchSpec,
    BatchStatus,
    BatchUsage,
)
from protocol.call import Call
from protocol.errors import FleetError
from protocol.messages import MOST

MOST_DUE = 100
"""So many are handled at once."""
PUT_AWAY_MS = 7 * 86_400_000
"""As `DEAD_KEEP_MS` of the functions."""
_STATUS_AT = "at:"


def batch_record(name: BatchName) -> Call[BatchRecord | None]:
    """A batch as it stands, with the time of its beginning; None when there is none of this name."""
    return Call(("HGETALL", keys.batch(name)), lambda reply: _record(name, reply) if reply else None)


def _record(name: BatchName, reply: Mapping[bytes, bytes]) -> BatchRecord:
    text = {field.decode(): value.decode() for field, value in reply.items()}
    times = {
        BatchStatus(field.removeprefix(_STATUS_AT)): reads.moment(value)
        for field, value in text.items()
        if field.startswith(_STATUS_AT)
    }
    status = BatchStatus(text["status"])
    if not {BatchStatus.VALIDATING, status} <= times.keys():
        raise ValueError("nobody created it, or brought it to where it is")
    read: dict[str, Callable[[str], Any]] = {
        "counts": BatchCounts.model_validate_json,
        "usage": BatchUsage.model_validate_json,
        "errors": lambda value: tuple(BatchError.model_validate(error) for error in wire.loads(value)),
        "output_file_id": str,
        "error_file_id": str,
        "model": str,
        "takes": reads.moment,
    }
    given = {field: reader(text[field]) for field, reader in read.items() if field in text}
    spec = BatchSpec.model_validate_json(text["spec"])
    return BatchRecord(name=name, spec=spec, status=status, times_ms=times, **given)


def batch_status(name: BatchName) -> Call[BatchStatus | None]:
    """A batch's state; None when there is none of this name."""
    return Call(("HGET", keys.batch(name), "status"), lambda reply: BatchStatus(reply.decode()) if reply else None)


def batch_input(name: BatchName) -> Call[str | None]:
    """The id of the file that a batch reads; None when there is none of this name."""
    command = ("HGET", keys.batch(name), "spec")
    return Call(command, lambda reply: BatchSpec.model_validate_json(reply).input_file_id if reply else None)


def batch_ids(tenant: str, count: int, start: int = 0) -> Call[list[BatchName]]:
    """At most `count` of a tenant's batches, the newest first, without the first `start`."""
    command = ("ZREVRANGE", keys.batches(tenant), start, start + count - 1)
    return Call(command, lambda reply: _names([f"{tenant}:".encode() + batch_id for batch_id in reply]))


def batch_place(name: BatchName) -> Call[int | None]:
    """How many of the tenant's batches are newer; None when there is none of this name."""
    return Call(("ZREVRANK", keys.batches(name.tenant), name.id), lambda reply: reply)


def idle_batches(now_ms: int) -> Call[list[BatchName]]:
    """Living batches that nobody owns at that time."""
    return _due(keys.LIVING_BATCHES, now_ms)


def endless_batches() -> Call[list[BatchName]]:
    """Living batches whose lease no owner wrote: it would never end."""
    command = ("ZRANGEBYSCORE", keys.LIVING_BATCHES, MOST, "+inf", "LIMIT", 0, MOST_DUE)
    return Call(command, _names)


def living_batches(most: int = 0) -> Call[list[BatchName]]:
    """Those that have not ended: all, or the first `most`."""
    return Call(("ZRANGE", keys.LIVING_BATCHES, 0, most - 1), _names)


def ended_batches() -> Call[list[BatchName]]:
    """All that have ended and are still there."""
    return Call(("ZRANGEBYSCORE", keys.ENDED_BATCHES, "-inf", "+inf"), _names)


def outdated_batches(now_ms: int) -> Call[list[BatchName]]:
    """Ended batches that need not be kept any longer at that time."""
    return _due(keys.ENDED_BATCHES, now_ms)


def untold_batches(now_ms: int) -> Call[list[BatchName]]:
    """Ended batches of which the webhook does not know yet."""
    return _due(keys.BATCH_HOOKS, now_ms)


def untold(name: BatchName) -> Call[bool]:
    """Whether the webhook does not know yet of this batch's end."""
    return Call(("ZSCORE", keys.BATCH_HOOKS, name.ref), lambda score: score is not None)


def runner_lives() -> Call[bool]:
    """Whether some batch runner has given a sign of life in the last seconds."""
    return Call(("EXISTS", keys.RUNNER_SIGN), bool)


def told(name: BatchName) -> Call[bool]:
    """The webhook knows, or was given up."""
    return Call(("ZREM", keys.BATCH_HOOKS, name.ref), bool)


def with_strays(listed: Call[list[BatchName]]) -> Call[tuple[list[BatchName], list[bytes]]]:
    """What a list names, and those of the members that its call looks at that can name no batch."""
    return Call(listed.command, lambda reply: _sorted_out(listed, reply))


def _sorted_out(listed: Call[list[BatchName]], reply: Sequence[bytes]) -> tuple[list[BatchName], list[bytes]]:
    names = listed.parse(reply)
    return names, [] if len(names) == len(reply) else [member for member in reply if not listed.parse([member])]


def strike(listed: Call[list[BatchName]], members: Sequence[bytes]) -> Call[int]:
    """Take members out of a list; yields how many were there."""
    return Call(("ZREM", listed.command[1], *members), int)


def put_away(name: BatchName) -> list[Call[Any]]:
    """Strike what stands under a batch's name, and is none, from all lists; for a week it can be looked at.

    Several calls: each may be repeated, and one that a key of another type refuses is done without.
    """
    lists = (keys.LIVING_BATCHES, keys.ENDED_BATCHES, keys.BATCH_HOOKS)
    return [
        Call(("PEXPIRE", keys.batch(name), PUT_AWAY_MS, "NX"), bool),
        *(Call(("ZREM", key, name.ref), bool) for key in lists),
        Call(("ZREM", keys.batches(name.tenant), name.id), bool),
    ]


def _due(key: str, now_ms: int) -> Call[list[BatchName]]:
    return Call(("ZRANGEBYSCORE", key, "-inf", now_ms, "LIMIT", 0, MOST_DUE), _names)


def _names(reply: Sequence[bytes]) -> list[BatchName]:
    found = []
    for ref in reply:
        # What was written by hand is nobody's batch.
        with suppress(FleetError, UnicodeDecodeError):
            found.append(BatchName.parse(ref.decode()))
    return found
