"""`batch_take`: a runner becomes the owner of a batch, for the length of a lease."""

from protocol import keys
from protocol.batches import BatchName
from protocol.call import Call, fcall
from protocol.errors import Unreadable


def batch_take(name: BatchName, token: str, lease_ms: int) -> Call[int]:
    """Yields how often the batch was taken; 0 when another owns it, or it has ended. `token` is random, one a run.

    Raises (when run):
        Unreadable: what stands under its name is no batch.
    """
    return fcall("batch_take", [keys.batch(name), keys.LIVING_BATCHES], (name.ref, token, lease_ms), _parse)


def _parse(reply: int) -> int:
    if reply < 0:
        raise Unreadable("what stands under the batch's name is none", "Was it written by hand?")
    return reply
