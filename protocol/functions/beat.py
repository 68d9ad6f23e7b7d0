"""`beat`: joins, renews the lease, publishes load, models and prefix state, acknowledges inbox entries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol import keys
from protocol.call import Arg, Call, fcall
from protocol.handle import Shard
from protocol.messages import LoadReport
from protocol.states import WorkerState
from protocol.wire import dumps


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat of a worker."""

    worker: str
    label: str
    state: WorkerState
    slots: int
    lease_ms: int
    report: LoadReport
    join: bool = False
    models: Sequence[str] = ()
    """The names that it serves; none when it serves whatever its pool does."""
    acknowledged: Sequence[str] = ()
    """Inbox entries that are done with."""
    added: Sequence[str] = ()
    """Prefix hashes that the engine holds since the last beat that was answered."""
    removed: Sequence[str] = ()
    """Those that it holds no longer."""


def beat(shard: Shard, message: Beat) -> Call[int | None]:
    """Yields how many jobs Redis knows the worker to hold; None when the worker was reclaimed: begin a new life."""
    names = [
        keys.workers(shard),
        keys.worker(shard, message.worker),
        keys.inbox(shard, message.worker),
        keys.events(shard),
        keys.prefixes(shard, message.worker),
    ]
    report = message.report.model_dump_json(exclude_none=True)
    who = (message.worker, message.label, message.state, message.slots)
    lists = (message.models, message.acknowledged, message.added, message.removed)
    packed = [dumps(list(items)) for items in lists]
    args: tuple[Arg, ...] = (*who, message.lease_ms, report, int(message.join), *packed)
    return fcall("beat", names, args, _parse)


def _parse(reply: list[Any]) -> int | None:
    return int(reply[1]) if reply[0] == b"ok" else None
