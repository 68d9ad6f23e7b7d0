"""`start`: marks an attempt as started and hands out what is needed to run it."""

from typing import Any

from protocol import keys
from protocol.call import Call, fcall
from protocol.errors import ProtocolViolation
from protocol.handle import Handle
from protocol.messages import JobSpec, Started
from protocol.states import Priority


def start(handle: Handle, attempt: int, worker: str) -> Call[Started | None]:
    """Start the attempt; None when it is not (or no longer) this worker's.

    Raises (when run):
        ProtocolViolation: the job's stored description can't be read.
    """
    names = [keys.job(handle), keys.body(handle), keys.workers(handle.shard)]
    return fcall("start", names, (handle.ref, attempt, worker), _parse)


def _parse(reply: list[Any]) -> Started | None:
    if reply[0] != b"ok":
        return None
    _, spec, body, priority, tries, strikes, left = reply
    try:
        return Started(
            spec=JobSpec.model_validate_json(spec),
            body=body,
            priority=Priority(priority.decode()),
            tries=int(tries),
            strikes=int(strikes),
            deadline_left_ms=int(left),
        )
    except ValueError:
        raise ProtocolViolation("the job's stored description can't be read") from None
