"""`start`: marks an attempt as started and hands out what is needed to run it."""

from typing import Any

from protocol import frames, keys
from protocol.call import Call, fcall
from protocol.errors import FleetError, ProtocolViolation
from protocol.handle import Handle
from protocol.messages import Frame, JobSpec, LostAttempt, Started
from protocol.states import Priority


def start(handle: Handle, attempt: int, worker: str) -> Call[Started | None]:
    """Start the attempt; None when it is not (or no longer) this worker's.

    Raises (when run):
        ProtocolViolation: the job's stored description can't be read.
    """
    names = [keys.job(handle), keys.body(handle), keys.workers(handle.shard), keys.tokens(handle)]
    return fcall("start", names, (handle.ref, attempt, worker, "times"), _parse)


def _parse(reply: list[Any]) -> Started | None:
    if reply[0] != b"ok":
        return None
    _, spec, body, priority, tries, strikes, left, log, *times = reply
    # An older library tells none.
    waiting, since, assigned, started, lost = times or (0, 0, 0, 0, b"")
    try:
        return Started(
            spec=JobSpec.model_validate_json(spec),
            body=body,
            priority=Priority(priority.decode()),
            tries=int(tries),
            strikes=int(strikes),
            deadline_left_ms=int(left),
            said=_said(log),
            waiting_ms=int(waiting),
            since_ms=int(since),
            assigned_ms=int(assigned),
            started_ms=int(started),
            lost=_lost(lost),
        )
    except ValueError:
        raise ProtocolViolation("the job's stored description can't be read") from None


def _lost(text: bytes) -> LostAttempt | None:
    """None also for what was written by hand."""
    parts = text.split()
    if len(parts) != 3 or not all(part.isdigit() and len(part) < 16 for part in parts):
        return None
    attempt, started, ended = map(int, parts)
    return LostAttempt(attempt, started, ended)


def _said(log: list[Any]) -> tuple[Frame, ...]:
    """The text that can be gone on with; one whose log was written by hand counts as none."""
    try:
        return frames.last_text([frames.decode(entry_id, payload) for entry_id, (_, payload) in log])
    except (ValueError, KeyError, TypeError, FleetError):
        return ()
