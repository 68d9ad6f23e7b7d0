"""One supervised process: started, its output passed on, started again when it dies, ended with us."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from tokenfleet.up.backoff import next_pause_s

LONGEST_LINE_BYTES = 64 * 1024
LAST_WORDS_S = 1.0
"""How long the last lines may take; a process that a dead child left behind can hold its output open for ever."""

LineSink = Callable[[str, str], None]
"""Takes a child's name and one line; called from any thread."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run under a name."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to our own environment."""
    grace_s: float = 10.0
    """How long it may take to end after SIGTERM."""
    inherit: tuple[int, ...] = ()
    """Descriptors that stay open in it."""
    hard_end: int = signal.SIGKILL
    """The signal that ends it at once, with all that it started."""


class Child:
    """A process that is kept running. Its stdin is a pipe from us, which closes when we die, however we die."""

    def __init__(self, command: Command, on_line: LineSink, on_death: LineSink) -> None:
        """Start nothing yet; `on_death` takes the name and what happened, in words."""
        self.command = command
        self.starts = 0
        self._on_line = on_line
        self._on_death = on_death
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = asyncio.Event()
        self._down = asyncio.Event()
        self._down.set()

    @property
    def name(self) -> str:
        """What the child is called in logs and in `EmbeddedFleet.process`."""
        return self.command.name

    @property
    def pid(self) -> int | None:
        """Its process id; None while it is down."""
        return self._process.pid if self._process and self._process.poll() is None else None

    async def run(self) -> None:
        """Keep it running until `stop`."""
        clock, pause_s = asyncio.get_running_loop().time, 0.0
        while not self._stopping.is_set():
            begin = clock()
            ending = await self._run_once()
            if self._stopping.is_set():
                return
            pause_s = next_pause_s(pause_s, clock() - begin)
            self._on_death(self.name, f"{ending}; starts again in {pause_s:g} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _run_once(self) -> str:
        """Run it to its end and say how it ended."""
        try:
            process = self._start()
        except OSError as error:
            return f"can't be started ({error.strerror})"
        self._process = process
        self.starts += 1
        self._down.clear()
        loop = asyncio.get_running_loop()
        threading.Thread(target=_wait, args=(process, loop, self._down), daemon=True).start()
        reader = threading.Thread(target=self._pass_on, args=(process.stdout,), daemon=True)
        reader.start()
        await self._down.wait()
        if process.stdin:
            process.stdin.close()
        await asyncio.to_thread(reader.join, LAST_WORDS_S)
        return _ending(process.returncode)

    def _start(self) -> "subprocess.Popen[bytes]":
        # Its own session: Ctrl-C in the terminal reaches us alone, and we end the children in order.
        return subprocess.Popen(
            self.command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | self.command.env,
            pass_fds=self.command.inherit,
            start_new_session=True,
        )

    def _pass_on(self, output: IO[bytes]) -> None:
        with output:
            for line in lines_of(output):
                self._on_line(self.name, line)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal; nothing happens when it is down."""
        if self._process:
            self._process.send_signal(number)

    def end(self) -> None:
        """End it for good, now: nothing that it does is waited for."""
        self._stopping.set()
        self.kill(self.command.hard_end)

    async def stop(self) -> None:
        """End it for good: SIGTERM, its grace time, SIGKILL."""
        self._stopping.set()
        self.kill(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._down.wait(), self.command.grace_s)
        except TimeoutError:
            self.kill()
            await self._down.wait()


def _wait(process: "subprocess.Popen[bytes]", loop: asyncio.AbstractEventLoop, down: asyncio.Event) -> None:
    # A thread, and not asyncio's own subprocesses: these end for some Python versions only when all pipes are closed,
    # which a grandchild can hold open.
    process.wait()
    with suppress(RuntimeError):  # the loop is closed: nobody asks any more
        loop.call_soon_threadsafe(down.set)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def lines_of(output: IO[bytes]) -> Iterator[str]:
    """Lines without their ends, as they come; an endless one comes in pieces."""
    while line := output.readline(LONGEST_LINE_BYTES):
        yield line.decode(errors="replace").rstrip("\r\n")
