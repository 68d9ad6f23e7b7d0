"""vLLM's server as a child process: its output, its end, its memory."""

import asyncio
import os
import re
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from worker.engine.vllm.phases import LINES_KEPT

STOP_S = 10.0
"""How long vLLM may take to end when it is asked to."""
KILL_S = 10.0
_GUARD = Path(__file__).with_name("guard.py")
_LINE_END = re.compile(rb"[\r\n]+")
_LINE_BYTES = 4096


class Child:
    """One life of the server, behind its guard; see `guard`.

    Attributes:
        lines: the last lines of its output; empty from `silence` on.
        heard_s: when it last wrote anything, by the event loop's clock.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, output: "_Output", folder: Path, on_line: Callable[[str], None]
    ) -> None:
        self._process, self._output, self._folder, self._on_line = process, output, folder, on_line
        self._group = 0
        self._quiet = False
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.heard_s = asyncio.get_running_loop().time()
        self._ended = asyncio.create_task(self._follow(), name="vllm-end")
        self._tree: list[psutil.Process] = []

    @classmethod
    async def start(
        cls, folder: Path, command: Sequence[str], environment: Mapping[str, str], on_line: Callable[[str], None]
    ) -> "Child":
        """Run it; `on_line` gets each line until `silence`. The folder is removed with its end."""
        output, theirs = await _Output.open()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_GUARD), str(folder), *command),
                env=dict(environment),
                stdin=asyncio.subprocess.PIPE,
                stdout=theirs,
                stderr=theirs,
                # Ctrl-C in the worker's terminal must not reach vLLM: the worker ends it after its jobs.
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        return cls(process, output, folder, on_line)

    def silence(self) -> None:
        """From here on its lines may quote requests: they are read and dropped."""
        self._quiet = True
        self.lines.clear()

    async def wait(self) -> int:
        """Its exit code once it has ended and all that it wrote was read; see `phases.how_it_ended`."""
        return await asyncio.shield(self._ended)

    def resident_bytes(self) -> int:
        """The memory of all its processes; 0 when they are gone."""
        if not self._tree:
            # The tree stands once the server is up. Looking for it walks over all processes of the host: once.
            with suppress(psutil.Error):
                self._tree = psutil.Process(self._process.pid).children(recursive=True)
        return sum(_resident(process) for process in self._tree)

    def kill(self) -> None:
        """End all its processes now."""
        if self._process.stdin:
            # The guard's word to kill the group.
            self._process.stdin.close()

    async def close(self) -> None:
        """Ask it to end, then make it."""
        if not self._ended.done():
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
        if not await self._ends_within(STOP_S):
            self.kill()
        if not await self._ends_within(KILL_S):
            # Not even the guard ends: a process of the group hangs in its device's driver.
            with suppress(ProcessLookupError):
                self._process.kill()
            self._kill_group()
            await self._ends_within(KILL_S)
        self.kill()
        self._ended.cancel()

    async def _ends_within(self, seconds: float) -> bool:
        await asyncio.wait([self._ended], timeout=seconds)
        return self._ended.done()

    async def _follow(self) -> int:
        """Wait for its end."""
        reading = asyncio.create_task(self._read(), name="vllm-output")
        try:
            code = await self._process.wait()
            if code < 0:
                # The guard itself was killed, and the command with it; what is left keeps the output open.
                self._kill_group()
                shutil.rmtree(self._folder, ignore_errors=True)
            await reading
        finally:
            reading.cancel()
            self._output.close()
        return code if code >= 0 else 128 - code

    async def _read(self) -> None:
        """Read its output to the end: a full pipe would stop it."""
        rest = b""
        while piece := await self._output.reader.read(65536):
            self.heard_s = asyncio.get_running_loop().time()
            *lines, rest = _LINE_END.split(rest + piece)
            for line in lines:
                self._take(line)
            rest = rest[-_LINE_BYTES:]

    def _take(self, content: bytes) -> None:
        line = content[:_LINE_BYTES].decode(errors="replace").strip()
        if not self._group and line.isdigit():
            self._group = int(line)
        elif line and not self._quiet:
            self.lines.append(line)
            self._on_line(line)

    def _kill_group(self) -> None:
        """What a guard that was killed could not: end the rest."""
        if self._group:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class _Output:
    """The reading end of a pipe.

    With a pipe of asyncio's own the end of a process is not told while another holds the pipe open.
    """

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport

    @classmethod
    async def open(cls) -> "tuple[_Output, int]":
        """A pipe: what to read it with, and the file descriptor to write to."""
        ours, theirs = os.pipe()
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        pipe = os.fdopen(ours, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        return cls(reader, transport), theirs

    def close(self) -> None:
        self.transport.close()


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0
