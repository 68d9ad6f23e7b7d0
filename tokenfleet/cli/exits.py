"""Exit codes, in one place: what scripts may rely on."""

from enum import IntEnum

from protocol import errors


class Exit(IntEnum):
    """How a command ended."""

    CLEAN = 0
    UNWELL = 1
    INVALID = 2
    FAILED = 3
    UNAVAILABLE = 4
    INTERRUPTED = 130
    CLOSED_PIPE = 141


MEANINGS = {
    Exit.CLEAN: "done, nothing failed",
    Exit.UNWELL: "the doctor found something that fails",
    Exit.INVALID: "invalid input, setup or usage; nothing was done",
    Exit.FAILED: "finished, and a job or some rows failed, were cancelled or expired",
    Exit.UNAVAILABLE: "Redis or the fleet is unavailable, full, or did not answer in time; or the disk is full",
    Exit.INTERRUPTED: "interrupted by Ctrl-C or a signal",
    Exit.CLOSED_PIPE: "nobody reads the output any more, as after `| head`",
}

_AWAY = (
    errors.StoreUnavailable,
    errors.StoreFull,
    errors.QueueFull,
    errors.LibraryMissing,
    errors.NotAllowed,
    errors.NotDurable,
    errors.ProtocolViolation,
    errors.WaitTimeout,
    errors.OutputFailed,
)


def exit_of(error: errors.FleetError) -> Exit:
    """The exit code for an error: who can mend it, the caller or the operator."""
    return Exit.UNAVAILABLE if isinstance(error, _AWAY) else Exit.INVALID


def explained() -> str:
    """The table as help text, one line a code."""
    return "\n".join(f"{code.value:>4}  {meaning}" for code, meaning in MEANINGS.items())
