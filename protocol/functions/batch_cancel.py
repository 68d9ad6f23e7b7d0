"""`batch_cancel`: asks a batch's owner to end it."""

from protocol import keys
from protocol.batches import BatchName, BatchStatus
from protocol.call import Call, fcall


def batch_cancel(name: BatchName) -> Call[BatchStatus | None]:
    """Yields its state before; None when there is no such batch. One that is ending or has ended is left alone."""
    return fcall("batch_cancel", [keys.batch(name)], (), lambda reply: BatchStatus(reply.decode()) if reply else None)
