"""`beat`: joins, renews the lease, publishes the load report, acknowledges inbox entries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol import keys
from protocol.call import Arg, Call, fcall
from protocol.handle import Shard
from protocol.messages import LoadReport


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat of a worker."""

    worker: str
    label: str
    state: str
    slots: int
    lease_ms: int
    report: LoadReport
    join: bool = False
    acknowledged: Sequence[str] = ()


def beat(shard: Shard, message: Beat) -> Call[int | None]:
    """Yields how many jobs Redis knows the worker to hold; None when the worker was reclaimed: begin a new life."""
    names = [
        keys.workers(shard),
        keys.worker(shard, message.worker),
        keys.inbox(shard, message.worker),
        keys.events(shard),
    ]
    report = message.report.model_dump_json(exclude_none=True)
    who = (message.worker, message.label, message.state, message.slots)
    args: tuple[Arg, ...] = (*who, message.lease_ms, report, int(message.join), *message.acknowledged)
    return fcall("beat", names, args, _parse)


def _parse(reply: list[Any]) -> int | None:
    return int(reply[1]) if reply[0] == b"ok" else None
