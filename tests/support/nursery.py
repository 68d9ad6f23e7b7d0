"""Real processes at the price of a fork: a parent that has loaded everything forks one for each role.

Run as a module it is that parent: one JSON order a line on stdin, one JSON answer a line on stdout. It ends with its
stdin, and its children with it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from protocol.wire import JsonObject, dumps, loads

ROOT = Path(__file__).resolve().parents[2]
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
PRELOADED = (
    "aiohttp",
    "producer.fleet",
    "scheduler.process",
    "tokenfleet.cli.scheduler",
    "tokenfleet.cli.submit",
    "tokenfleet.cli.worker",
    "worker.engine.openai",
    "worker.engine.registry",
    "worker.engine.sim.engine",
    "worker.engine.vllm.engine",
    "worker.process",
)


class Nursery:
    """Forks processes on demand; use it as a context."""

    def __enter__(self) -> Self:
        # Coverage of processes that are killed is lost anyhow, and tracing them costs time.
        env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
        command = [sys.executable, "-m", "tests.support.nursery"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._parent = subprocess.Popen(command, cwd=ROOT, env=env | {"PYTHONPATH": str(ROOT)}, **pipes)  # type: ignore[call-overload]  # it does not follow a mapping
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._parent.stdin, self._parent.stdout):
            pipe.close()
        self._parent.wait(10)

    def fork(
        self, args: Sequence[str], env: Mapping[str, str], log: Path, *, shift_s: float = 0, namespace: str = ""
    ) -> int:
        """Start `tokenfleet ARGS`; its process id.

        Args:
            args: the words after the program's name.
            env: what is set over our own environment.
            log: where its stdout and stderr go.
            shift_s: how far its wall clock goes ahead.
            namespace: the network namespace that it runs in; empty for ours.
        """
        order = {"args": list(args), "env": dict(env), "log": str(log), "shift_s": shift_s, "namespace": namespace}
        return int(self._ask(order)["pid"])

    def code(self, pid: int) -> int | None:
        """The exit code of a process, below zero for a signal; None while it lives."""
        code: int | None = self._ask({"ended": pid})["code"]
        return code

    def _ask(self, order: JsonObject) -> JsonObject:
        self._parent.stdin.write(dumps(order) + b"\n")
        self._parent.stdin.flush()
        answer: JsonObject = loads(self._parent.stdout.readline())
        return answer


def main() -> None:
    """Be the parent, until stdin ends."""
    _warm_up()
    codes: dict[int, int | None] = {}
    for line in sys.stdin.buffer:
        order = loads(line)
        if "ended" in order:
            _reap(codes)
            answer = {"code": codes[order["ended"]]}
        else:
            pid = os.fork()
            if pid == 0:
                _become(order)
            codes[pid] = None
            answer = {"pid": pid}
        sys.stdout.buffer.write(dumps(answer) + b"\n")
        sys.stdout.buffer.flush()
    for pid, code in codes.items():
        if code is None:
            os.kill(pid, signal.SIGKILL)


def _warm_up() -> None:
    """Load here, once, what each child would load."""
    for name in PRELOADED:
        import_module(name)


def _reap(codes: dict[int, int | None]) -> None:
    for pid, code in codes.items():
        if code is None:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)


def _become(order: JsonObject) -> None:
    """In the child: from here on it is its own process."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.update(order["env"])
    code = 1
    try:
        if order["namespace"]:
            _enter(libc, order["namespace"])
        if order["shift_s"]:
            _shift_wall_clock(order["shift_s"])
        code = _run(order["args"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _enter(libc: Any, namespace: str) -> None:
    entrance = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(entrance, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "the network namespace can't be entered")


def _shift_wall_clock(shift_s: float) -> None:
    """What Python code of ours asks for the time of day; the monotonic clock stays."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + shift_s
    time.time_ns = lambda: real_ns() + int(shift_s * 1e9)


def _run(args: list[str]) -> int:
    from tokenfleet.cli import main as tokenfleet

    sys.argv = ["tokenfleet", *args]
    told: Callable[[], Any] = tokenfleet
    return int(told() or 0)


if __name__ == "__main__":
    main()
