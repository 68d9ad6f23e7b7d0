"""`emit`: appends the next frame to a job's log and publishes it."""

from collections.abc import Sequence

from protocol import keys, wire
from protocol.call import Call, fcall
from protocol.handle import Handle
from protocol.wire import JsonObject

STALE = -1
"""The answer to a worker whose attempt is over: abort it."""


def emit(handle: Handle, attempt: int, worker: str, seq: int, chunks: Sequence[JsonObject]) -> Call[int]:
    """Append frame `seq` (from 1, without holes).

    Yields the last sequence number in the log: `seq` or above when the frame is there, below when frames are missing
    before it (send those first); `STALE` when the attempt is not this worker's.
    """
    names = [keys.job(handle), keys.tokens(handle), keys.workers(handle.shard)]
    return fcall("emit", names, (handle.ref, attempt, worker, seq, wire.dumps(chunks)), int)
