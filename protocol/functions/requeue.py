"""`requeue`: gives a job back, for now or later."""

from typing import Any, Literal

from protocol import keys
from protocol.call import Call, fcall
from protocol.handle import Handle
from protocol.states import Priority

Fault = Literal["none", "try", "strike"]
"""`try`: the engine failed the request; `strike`: the engine died under it."""


def requeue(
    handle: Handle, attempt: int, worker: str, fault: Fault = "none", delay_ms: int = 0, why: str = ""
) -> Call[Literal["ok", "dead", "stale"]]:
    """Give the attempt back; `dead` when that was the third strike and the job is set aside.

    `why` stands in the job's history: it never holds the prompt.
    """
    shard = handle.shard
    names = [
        keys.job(handle),
        keys.body(handle),
        keys.result(handle),
        keys.tokens(handle),
        keys.inbox(shard, worker),
        keys.worker(shard, worker),
        keys.workers(shard),
        keys.deadlines(shard),
        keys.clock(shard),
        keys.tenant(shard, handle.tenant),
        keys.events(shard),
        *(keys.lane(shard, priority) for priority in Priority),
        keys.due(shard),
        keys.dead(shard),
    ]
    return fcall("requeue", names, (handle.ref, attempt, worker, fault, delay_ms, why), _parse)


def _parse(reply: list[Any]) -> Literal["ok", "dead", "stale"]:
    answer: Literal["ok", "dead", "stale"] = reply[0].decode()
    return answer
