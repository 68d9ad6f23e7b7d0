"""Runs a foreign program that must not outlive its parent: `python -m tokenfleet.up.guard -- PROGRAM ARGUMENT…`.

The program ends when this process's stdin closes (the parent died, however it died), when this process is told to end,
and, on Linux, when this process itself is killed. Standard library only, so that it starts at once.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

GRACE_S = 10.0
"""How long the program may take to end after SIGTERM."""
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> int:
    """Run the program after `--` and return its exit code, 128 + the signal's number when a signal ended it."""
    program = list(arguments[arguments.index("--") + 1 :])
    # Descriptors that the parent passed on stay open in the program: it holds the data directory's lock.
    child = subprocess.Popen(
        program,
        stdin=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=_die_with_parent(),  # noqa: PLW1509 - no other thread runs yet
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: child.terminate())
    threading.Thread(target=_end_with_parent, args=(child,), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _die_with_parent() -> Callable[[], None] | None:
    """What the child runs before it becomes the program; None where the kernel has no such signal."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the kernel knew what to do then

    return prepare


def _end_with_parent(child: "subprocess.Popen[bytes]") -> None:
    while os.read(0, 4096):
        pass
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
