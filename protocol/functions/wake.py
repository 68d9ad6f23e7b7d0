"""`wake`: clears the hints before the lanes are read, under the leader's token."""

from protocol import keys
from protocol.call import Call, fcall
from protocol.handle import Shard


def wake(shard: Shard, token: str) -> Call[bool]:
    """Clear the `events` stream, in the same pipeline as the reads that follow: one hint at a time is enough.

    Yields False, and clears nothing, when another leads.
    """
    return fcall("wake", [keys.events(shard), keys.leader(shard)], [token], bool)
