"""`assign`: moves jobs from their lanes to inboxes, under the leader's token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from protocol import keys
from protocol.call import Arg, Call, fcall
from protocol.handle import Shard
from protocol.messages import Why
from protocol.states import Priority

JOBS_A_CALL = 100


@dataclass(frozen=True, slots=True)
class Move:
    """Take the lane's entry `member` to `worker`; with no worker, park its job for `park_ms`, or refuse it.

    `late`: it is parked for others' sake, and may be recalled before. `why` is kept with a job that is taken.
    `refuse_ms` is the predicted wait for which it is refused. With none of these the job is set aside, because it
    can't be read. An entry without a queued job is removed.
    """

    member: str | bytes
    worker: str = ""
    park_ms: int = 0
    refuse_ms: int = 0
    why: Why | None = None
    late: bool = False


Refusal = Literal["gone", "worker", "expired", "parked", "malformed", "refused"]


def assign(shard: Shard, token: str, moves: Sequence[Move]) -> Call[list[int | Refusal] | None]:
    """Move at most 100 jobs; yields for each its attempt number, or why it has none; None when another leads."""
    workers = dict.fromkeys(move.worker for move in moves if move.worker)
    names = [
        keys.leader(shard),
        keys.clock(shard),
        keys.workers(shard),
        keys.events(shard),
        keys.deadlines(shard),
        *(keys.lane(shard, priority) for priority in Priority),
        keys.due(shard),
        keys.dead(shard),
        *(keys.inbox(shard, worker) for worker in workers),
    ]
    args: list[Arg] = [token]
    for move in moves[:JOBS_A_CALL]:
        why = move.why.model_dump_json() if move.why else "late" if move.late else ""
        args += (move.member, move.worker, move.park_ms or -move.refuse_ms, why)
    return fcall("assign", names, args, _parse)


def _parse(reply: list[Any]) -> list[int | Refusal] | None:
    if reply[0] != b"ok":
        return None
    return [int(item) if item.isdigit() else item.decode() for item in reply[1:]]
