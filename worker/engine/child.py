"""A child process that says where it listens, then serves until its standard input is closed."""

import asyncio
import os
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import psutil

from worker.engine.base import EngineDead

GRACE_S = 2.0
_PACKAGE_ROOT = Path(__file__).parents[2]


class Child:
    """One life of a Python module that runs as a server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Take a process that was just started."""
        self._process = process
        self._complaints: deque[str] = deque(maxlen=3)
        self._reading = asyncio.create_task(self._read_complaints(), name="child-stderr")

    @classmethod
    async def start(cls, module: str, arguments: Sequence[str]) -> "Child":
        """Run `python -m module arguments…` with this very interpreter and these very packages."""
        # Without -P a `worker.py` in the user's directory would run instead.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module, *arguments),
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_PACKAGE_ROOT), *_inherited_path()])},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def address(self, timeout_s: float) -> str:
        """The first line that it prints.

        Raises:
            EngineDead: it ended, or the time is over; the text says what it complained about.
        """
        stdout = self._process.stdout
        try:
            line = await asyncio.wait_for(stdout.readline(), timeout_s) if stdout else b""
        except TimeoutError:
            msg = f"the engine's process did not come up in {timeout_s:g} s"
            raise EngineDead(msg, reached=False) from None
        if not line:
            await self._reading
            raise EngineDead(f"the engine's process ended: {' / '.join(self._complaints)}", reached=False)
        # From here on it may complain about requests, which must not be shown.
        self._complaints.clear()
        return line.decode().strip()

    async def wait(self) -> str:
        """How it ended; once it did."""
        code = await self._process.wait()
        return f"the engine's process ended with {f'signal {-code}' if code < 0 else f'code {code}'}"

    def resident_bytes(self) -> int:
        """Its memory; 0 when it is gone."""
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    async def close(self) -> None:
        """Let it end, or make it."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), GRACE_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading

    async def _read_complaints(self) -> None:
        """Keep the pipe empty: a full one would stop the child."""
        stderr = self._process.stderr
        while stderr and (line := await stderr.readline()):
            self._complaints.append(line.decode(errors="replace").strip()[:300])


def _inherited_path() -> list[str]:
    return [path] if (path := os.environ.get("PYTHONPATH", "")) else []
