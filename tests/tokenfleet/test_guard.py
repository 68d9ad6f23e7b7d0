"""The guard ends its program whenever its own end, or its parent's, comes."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

GUARD = (sys.executable, "-m", "tokenfleet.up.guard", "--")
NAP = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print('up', flush=True)
# Not handled: a handler that comes just before a sleep runs only after it.
sys.exit(7 if signal.sigtimedwait([signal.SIGTERM], 60) else 1)
"""


def guarded(code: str) -> "tuple[subprocess.Popen[bytes], psutil.Process]":
    """A guard whose program is up, and that program."""
    guard = subprocess.Popen([*GUARD, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert guard.stdout
    assert guard.stdout.readline() == b"up\n"
    guard.stdout.close()
    return guard, psutil.Process(guard.pid).children()[0]


def gone(process: psutil.Process) -> bool:
    """Whether it ended within a few seconds."""
    _, alive = psutil.wait_procs([process], timeout=5)
    return not alive or not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def close(guard: "subprocess.Popen[bytes]") -> int:
    assert guard.stdin
    guard.stdin.close()
    return guard.wait(10)


def test_the_program_ends_when_stdin_closes() -> None:
    guard, program = guarded(NAP)
    assert close(guard) == 7
    assert gone(program)


def test_the_program_ends_when_the_guard_is_told_to() -> None:
    guard, program = guarded(NAP)
    guard.terminate()
    assert guard.wait(10) == 7
    assert gone(program)
    close(guard)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's death is Linux's own")
def test_the_program_ends_when_the_guard_is_killed() -> None:
    guard, program = guarded(NAP)
    guard.kill()
    assert gone(program)
    close(guard)


def test_the_guard_ends_as_its_program_did() -> None:
    code = "import os; os.kill(os.getpid(), 9)"
    guard = subprocess.Popen([*GUARD, sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert guard.wait(10) == 128 + signal.SIGKILL
    close(guard)


def test_a_passed_descriptor_stays_open_in_the_program() -> None:
    reader, writer = os.pipe()
    code = f"import os; os.write({writer}, b'here')"
    guard = subprocess.Popen([*GUARD, sys.executable, "-c", code], stdin=subprocess.PIPE, pass_fds=[writer])
    os.close(writer)
    assert (guard.wait(10), os.read(reader, 10)) == (0, b"here")
    os.close(reader)
    close(guard)


def test_the_guard_starts_at_once() -> None:
    begin = time.monotonic()
    guard, _ = guarded(NAP)
    assert time.monotonic() - begin < 3
    close(guard)
