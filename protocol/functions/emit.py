"""`emit`: appends the next frame to a job's log and publishes it."""

from collections.abc import Sequence

from protocol import frames, keys
from protocol.call import Call, fcall
from protocol.handle import Handle
from protocol.messages import Position
from protocol.wire import JsonObject

STALE = -1
"""The answer to a worker whose attempt is over: abort it."""
UPROOTED = -2
"""The answer to a frame that goes on from one that the log does not end with: only another attempt can mend that."""


def emit(  # noqa: PLR0913 - a frame, and what is told beside it
    handle: Handle,
    attempt: int,
    worker: str,
    seq: int,
    chunks: Sequence[JsonObject],
    *,
    tokens: int | Sequence[int] = 0,
    after: Position | None = None,
    first_token_after_ms: int = -1,
) -> Call[int]:
    """Append frame `seq` (from 1, without holes).

    An attempt that goes on with an older one's text begins after that one's last frame, `after`: its first frame has
    the next number and names it. `tokens` are those of the frame's text, or how many they are, 0 for as many as it has
    chunks that speak. `first_token_after_ms`, from the start, tells when the first token of frame 1 came where that is
    not now.

    Yields the last sequence number in the log: `seq` or above when the frame is there, below when frames are missing
    before it (send those first); `STALE` when the attempt is not this worker's; `UPROOTED` when the log does not end
    with `after`.
    """
    names = [keys.job(handle), keys.tokens(handle), keys.workers(handle.shard)]
    payload = frames.encode(chunks, tokens, after)
    root = frames.id_of(after) if after else ""
    count = (tokens if isinstance(tokens, int) else len(tokens)) or len(chunks)
    told = (root, first_token_after_ms, count)
    return fcall("emit", names, (handle.ref, attempt, worker, seq, payload, *told), int)
