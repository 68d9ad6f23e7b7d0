"""`finish`: ends an attempt as completed or failed, with its outcome."""

from dataclasses import dataclass
from typing import Any

from protocol import keys
from protocol.call import Call, fcall
from protocol.handle import Handle
from protocol.messages import Outcome


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one attempt."""

    handle: Handle
    attempt: int
    worker: str
    frames: int
    """Sequence number of the last frame emitted; 0 for a job that does not stream."""
    outcome: Outcome
    first_token_after_ms: int = -1
    """From the start to the first token; -1 when there was none."""


@dataclass(frozen=True, slots=True)
class FinishReply:
    """`accepted`; or the log's last frame when it lacks some (`missing_after`); or neither: the attempt is stale."""

    accepted: bool
    missing_after: int | None = None
    first_token_ms: int = 0
    finished_ms: int = 0
    """Times of an end that was accepted, as in `JobRecord`; 0 where the library does not tell them."""


def finish(end: Finished) -> Call[FinishReply]:
    """Record the outcome; repeat freely."""
    shard, handle = end.handle.shard, end.handle
    names = [
        keys.job(handle),
        keys.body(handle),
        keys.result(handle),
        keys.tokens(handle),
        keys.inbox(shard, end.worker),
        keys.worker(shard, end.worker),
        keys.workers(shard),
        keys.deadlines(shard),
        keys.clock(shard),
        keys.tenant(shard, handle.tenant),
        keys.events(shard),
    ]
    outcome = end.outcome.model_copy(update={"attempt": end.attempt})
    code = outcome.error.code if outcome.error else ""
    stored = outcome.model_dump_json(exclude_none=True)
    who = (handle.ref, end.attempt, end.worker, end.frames)
    used = -1 if (tokens := outcome.used_tokens) is None else tokens
    return fcall("finish", names, (*who, outcome.state, stored, code, end.first_token_after_ms, used), _parse)


def _parse(reply: list[Any]) -> FinishReply:
    if reply[0] == b"gap":
        return FinishReply(accepted=False, missing_after=int(reply[1]))
    if reply[0] != b"ok":
        return FinishReply(accepted=False)
    # An older library tells no times.
    first, finished = reply[1:] or (0, 0)
    return FinishReply(accepted=True, first_token_ms=int(first), finished_ms=int(finished))
