"""`leave`: hands everything back and goes."""

from protocol import keys
from protocol.call import Call, fcall
from protocol.handle import Shard
from protocol.states import Priority


def leave(shard: Shard, worker: str) -> Call[bool]:
    """Hand back at most 100 jobs; True once the worker is gone, else call again."""
    names = [
        keys.workers(shard),
        keys.worker(shard, worker),
        keys.inbox(shard, worker),
        keys.clock(shard),
        keys.deadlines(shard),
        keys.events(shard),
        keys.due(shard),
        *(keys.lane(shard, priority) for priority in Priority),
    ]
    return fcall("leave", names, (worker,), bool)
