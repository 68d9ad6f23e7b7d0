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
_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(arguments: Sequence[str]) -> int:
    """Run the program after `--` and return its exit code, 128 + the signal's number when a signal ended it."""
    program = list(arguments[arguments.index("--") + 1 :])
    # Waited for, not handled: the handler of a signal that comes just before the main thread begins to wait for the
    # program would run only once that has ended.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    # Descriptors that the parent passed on stay open in the program: it holds the data directory's lock.
    child = subprocess.Popen(
        program,
        stdin=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=_preparation(),  # noqa: PLW1509 - no other thread runs yet
    )
    for ending in (_end_when_told, _end_with_parent):
        threading.Thread(target=ending, args=(child,), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _preparation() -> Callable[[], None]:
    """What the child runs before it becomes the program: it dies with its parent where the kernel has a signal."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    parent = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
        if libc is None:
            return
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the kernel knew what to do then

    return prepare


def _end_when_told(child: "subprocess.Popen[bytes]") -> None:
    while True:
        signal.sigwait(_ENDINGS)
        child.terminate()


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
