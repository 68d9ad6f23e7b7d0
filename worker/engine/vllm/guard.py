"""Runs one command in a process group of its own, and outlives it only to see that nothing of it is left.

Usage: python -I -S guard.py FOLDER COMMAND ARGUMENT…

vLLM's own processes do not end with each other: kill its server, and the engine goes on and keeps the device's
memory. So this small process stands between the worker and vLLM. When its standard input ends (the worker closed it,
or was killed) the whole group is killed; when the command ends by itself, the rest of its group is. SIGTERM is passed
on to the command. It ends with the command's exit code (128 and the signal's number for a signal), and only when all
processes of the group are gone, so that their memory is free by then, and the folder with them.

The first line on standard output is the number of the group. Nothing but the standard library is imported: it runs
on any Python, and starts at once.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    """A setting of this process that only Linux has; elsewhere the end of standard input does it alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _become_group() -> None:
    """In the new process, before the command runs."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    os.setpgid(0, 0)
    # Should this guard be killed, the command dies at once; the worker, which knows the group, kills the rest.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.write(1, b"%d\n" % os.getpid())


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _pass_on_sigterm(command: "subprocess.Popen[bytes]") -> None:
    """Wait for it: the handler of one that comes just before the main thread begins to wait runs only after that."""
    while True:
        signal.sigwait([signal.SIGTERM])
        command.terminate()


def _kill_when_input_ends(group: int) -> None:
    while os.read(0, 4096):
        continue
    _kill(group)


def _reap_all() -> None:
    """Wait for whatever the group has left; orphans become children of this process."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def main(folder: str, *command: str) -> int:
    """Run the command to its end; its exit code. `folder` holds what lives as long as it, and is removed."""
    # Ctrl-C reaches the whole terminal: the worker alone decides when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_become_group)  # noqa: PLW1509 - no threads yet
    threading.Thread(target=_pass_on_sigterm, args=(child,), daemon=True).start()
    threading.Thread(target=_kill_when_input_ends, args=(child.pid,), daemon=True).start()
    code = child.wait()
    _kill(child.pid)
    _reap_all()
    shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
