"""`cancel`: ends a job at once, wherever it is."""

from protocol import keys
from protocol.call import Call, fcall
from protocol.errors import UnknownJob
from protocol.handle import Handle
from protocol.states import Priority, State


def cancel(handle: Handle) -> Call[State]:
    """Yields the state before: a terminal one means that nothing was done.

    Raises (when run):
        UnknownJob: there is no such job.
    """
    shard = handle.shard
    names = [
        keys.job(handle),
        keys.body(handle),
        keys.result(handle),
        keys.tokens(handle),
        keys.deadlines(shard),
        keys.clock(shard),
        keys.events(shard),
        keys.tenant(shard, handle.tenant),
        keys.due(shard),
        *(keys.lane(shard, priority) for priority in Priority),
    ]
    return fcall("cancel", names, (handle.ref,), _parse)


def _parse(reply: bytes) -> State:
    if not reply:
        msg = "there is no such job"
        raise UnknownJob(msg, "It may have been forgotten or have passed its retention.")
    return State(reply.decode())
