"""`batch_release`: a runner hands a batch over."""

from protocol import keys
from protocol.call import Call, fcall
from protocol.functions.batch_write import BatchLease


def batch_release(lease: BatchLease, pause_ms: int = 0) -> Call[bool]:
    """Free it for the next owner, who is looked for after `pause_ms`; False when the lease was lost before."""
    names = [keys.batch(lease.name), keys.LIVING_BATCHES]
    return fcall("batch_release", names, (lease.name.ref, lease.token, pause_ms), bool)
