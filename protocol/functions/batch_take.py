"""`batch_take`: a runner becomes the owner of a batch, for the length of a lease."""

from protocol import keys
from protocol.batches import BatchName
from protocol.call import Call, fcall


def batch_take(name: BatchName, token: str, lease_ms: int) -> Call[int]:
    """Yields how often the batch was taken; 0 when another owns it, or it has ended. `token` is random, one a run."""
    return fcall("batch_take", [keys.batch(name), keys.LIVING_BATCHES], (name.ref, token, lease_ms), int)
