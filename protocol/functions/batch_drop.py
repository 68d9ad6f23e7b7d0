"""`batch_drop`: forgets a batch that has ended."""

from protocol import keys
from protocol.batches import BatchName
from protocol.call import Call, fcall


def batch_drop(name: BatchName) -> Call[bool]:
    """Delete its record, wherever it is listed; False when it has not ended. Its files are not in Redis."""
    lists = [keys.batches(name.tenant), keys.LIVING_BATCHES, keys.ENDED_BATCHES, keys.BATCH_HOOKS]
    return fcall("batch_drop", [keys.batch(name), *lists], (name.ref, name.id), bool)
