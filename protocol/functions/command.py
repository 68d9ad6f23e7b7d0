"""`command`: an operator's word to a worker, through its inbox."""

from typing import Literal

from protocol import keys
from protocol.call import Call, fcall
from protocol.handle import Shard

Command = Literal["drain"]


def command(shard: Shard, worker: str, word: Command) -> Call[bool]:
    """Yields False when no such worker holds a lease."""
    return fcall("command", [keys.workers(shard), keys.inbox(shard, worker)], (worker, word), bool)
