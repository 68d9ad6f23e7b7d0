"""The Redis function library: one Lua file a function, and its Python signature beside it."""

from protocol.functions.assign import Move, assign
from protocol.functions.batch_cancel import batch_cancel
from protocol.functions.batch_create import batch_create
from protocol.functions.batch_drop import batch_drop
from protocol.functions.batch_release import batch_release
from protocol.functions.batch_take import batch_take
from protocol.functions.batch_write import BatchLease, batch_write
from protocol.functions.beat import Beat, beat
from protocol.functions.cancel import cancel
from protocol.functions.command import Command, command
from protocol.functions.emit import STALE, UPROOTED, emit
from protocol.functions.finish import Finished, FinishReply, finish
from protocol.functions.forget import forget, forget_notice
from protocol.functions.leave import leave
from protocol.functions.register import register
from protocol.functions.requeue import Fault, requeue
from protocol.functions.start import start
from protocol.functions.submit import Submission, Submitted, submit
from protocol.functions.tick import NO_QUOTAS, Quotas, Ticked, TickTimes, tick
from protocol.functions.wake import wake

__all__ = [
    "NO_QUOTAS",
    "STALE",
    "UPROOTED",
    "BatchLease",
    "Beat",
    "Command",
    "Fault",
    "FinishReply",
    "Finished",
    "Move",
    "Quotas",
    "Submission",
    "Submitted",
    "TickTimes",
    "Ticked",
    "assign",
    "batch_cancel",
    "batch_create",
    "batch_drop",
    "batch_release",
    "batch_take",
    "batch_write",
    "beat",
    "cancel",
    "command",
    "emit",
    "finish",
    "forget",
    "forget_notice",
    "leave",
    "register",
    "requeue",
    "start",
    "submit",
    "tick",
    "wake",
]
