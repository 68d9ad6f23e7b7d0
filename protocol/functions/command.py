"""`command`: an operator's word to a worker, through its inbox."""

from typing import Literal

from protocol import keys
from protocol.call import Call, fcall
from protocol.handle import Shard

Command = Literal["drain", "promote", "rest", "sleep", "wake"]


def command(shard: Shard, worker: str, word: Command) -> Call[str | None]:
    """Yields the inbox entry, which the worker names once it has obeyed or refused (`LoadReport.answered`).

    None when no such worker holds a lease.
    """
    return fcall("command", [keys.workers(shard), keys.inbox(shard, worker)], (worker, word), _parse)


def _parse(reply: bytes) -> str | None:
    return reply.decode() or None
