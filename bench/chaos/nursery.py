"""Processes that are forked from a warm parent, so that one starts in milliseconds, and started again when they die.

These run functions, with engines that only exist here; tests/support/nursery.py runs command lines, as users do.
"""

import ctypes
import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
_CONTEXT = get_context("forkserver")


def warm(module: str) -> None:
    """Name what the parent imports once for all; before the first start."""
    _CONTEXT.set_forkserver_preload([module])


class Cub:
    """One role under a name, over all its lives."""

    def __init__(self, name: str, log: Path, run: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - run's
        self.name, self._log, self._run, self._arguments = name, log, run, arguments
        self.starts = 0
        self._process: ForkServerProcess | None = None

    @property
    def pid(self) -> int:
        """Its process; 0 while there is none."""
        return (self._process.pid if self._process else None) or 0

    @property
    def exit_code(self) -> int | None:
        """How the last life ended: minus the signal, or a code; None while it runs."""
        return self._process.exitcode if self._process else None

    def start(self) -> None:
        """Begin a life."""
        arguments = (self._log, self._run, self._arguments)
        self._process = _CONTEXT.Process(target=_live, args=arguments, name=self.name, daemon=True)
        self._process.start()
        self.starts += 1

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a dead one gets none."""
        if self.pid and self.exit_code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it with -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.join()

    def join(self, seconds: float = 10.0) -> bool:
        """Whether it has ended within so long."""
        if self._process:
            self._process.join(seconds)
        return self.exit_code is not None or self._process is None


def _live(log: Path, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """In the child: it dies with its parent, which dies with us, and its output goes to its log."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with log.open("ab", buffering=0) as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    run(*arguments)
