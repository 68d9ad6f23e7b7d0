"""`wake`: clears the hints before the lanes are read."""

from protocol import keys
from protocol.call import Call, fcall
from protocol.handle import Shard


def wake(shard: Shard) -> Call[bool]:
    """Clear the `events` stream, in the same pipeline as the reads that follow: one hint at a time is enough."""
    return fcall("wake", [keys.events(shard)], (), bool)
