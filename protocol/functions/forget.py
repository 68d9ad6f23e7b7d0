"""`forget`: deletes what its reader has consumed."""

from protocol import keys
from protocol.call import Call, fcall
from protocol.handle import Handle
from protocol.messages import DoneNotice


def forget(handle: Handle, attempt: int) -> Call[bool]:
    """Delete an ended job; False when it is another run by now."""
    return fcall("forget", _names(handle), (handle.ref, attempt), bool)


def forget_notice(reply_to: str, notice: DoneNotice) -> Call[bool]:
    """Delete an ended job together with the notice that told of it."""
    handle = notice.handle
    names = [*_names(handle), keys.done(handle.shard, handle.tenant, reply_to)]
    return fcall("forget", names, (handle.ref, notice.attempt, notice.entry_id), bool)


def _names(handle: Handle) -> list[str]:
    return [keys.job(handle), keys.body(handle), keys.result(handle), keys.tokens(handle)]
