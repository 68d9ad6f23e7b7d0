"""`batch_write`: a batch's owner keeps its lease, and writes what has changed."""

from dataclasses import dataclass

from protocol import keys, wire
from protocol.batches import BatchChange, BatchName, BatchStatus
from protocol.call import Arg, Call, fcall
from protocol.messages import Message


@dataclass(frozen=True, slots=True)
class BatchLease:
    """Who owns a batch."""

    name: BatchName
    token: str
    lease_ms: int


def batch_write(lease: BatchLease, change: BatchChange, keep_ms: int, *, notify: bool) -> Call[BatchStatus | None]:
    """Yields the batch's state now; None when the lease is lost: then nothing was written.

    Args:
        lease: the owner's, which is renewed.
        change: what to write. A state that may not follow, as `completed` after a cancel, is not taken, nor are the
            fields beside it.
        keep_ms: how long a batch is kept once it has ended.
        notify: whether its end is to be told to a webhook.
    """
    names = [keys.batch(lease.name), keys.LIVING_BATCHES, keys.ENDED_BATCHES, keys.BATCH_HOOKS]
    args: list[Arg] = [lease.name.ref, lease.token, lease.lease_ms, change.status or "", keep_ms, int(notify)]
    for field, value in change.fields().items():
        args += [field, _encoded(value)]
    return fcall("batch_write", names, args, lambda reply: BatchStatus(reply.decode()) if reply else None)


def _encoded(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Message):
        return value.model_dump_json().encode()
    members = value if isinstance(value, tuple) else ()
    return wire.dumps([member.model_dump() for member in members])
