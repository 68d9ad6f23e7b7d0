"""A supervised child: passed on, started again, ended."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.support.waiting import eventually
from tokenfleet.up.backoff import FIRST_S, LONGEST_S, next_pause_s
from tokenfleet.up.child import LONGEST_LINE_BYTES, Child, Command

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


class Heard:
    """What a child wrote, and how it died."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.deaths: list[str] = []

    def line(self, _name: str, line: str) -> None:
        self.lines.append(line)

    def death(self, _name: str, text: str) -> None:
        self.deaths.append(text)


@asynccontextmanager
async def running(code: str, grace_s: float = 5) -> AsyncIterator[tuple[Child, Heard]]:
    heard = Heard()
    child = Child(Command("one", (sys.executable, "-c", code), grace_s=grace_s), heard.line, heard.death)
    task = asyncio.create_task(child.run())
    try:
        yield child, heard
    finally:
        await child.stop()
        await task


def said(heard: Heard, count: int) -> Callable[[], bool]:
    return lambda: heard.lines.count("up") >= count


async def test_a_killed_child_comes_again() -> None:
    async with running(SLEEP) as (child, heard):
        await eventually(said(heard, 1))
        first = child.pid
        child.kill()
        await eventually(said(heard, 2))
        assert child.pid not in (None, first)
        assert heard.deaths == [f"was ended by SIGKILL; starts again in {FIRST_S:g} s"]
    assert child.pid is None


async def test_a_stopped_child_stays_down() -> None:
    async with running(SLEEP) as (child, heard):
        await eventually(said(heard, 1))
    assert (child.pid, child.starts, heard.deaths) == (None, 1, [])


async def test_a_child_that_does_not_listen_is_killed() -> None:
    async with running(STUBBORN, grace_s=0.2) as (child, heard):
        await eventually(said(heard, 1))
    assert child.pid is None


async def test_ending_waits_for_nothing() -> None:
    async with running(STUBBORN, grace_s=60) as (child, heard):
        await eventually(said(heard, 1))
        child.end()
        await eventually(lambda: child.pid is None)
    assert not heard.deaths


async def test_a_child_that_fails_is_started_again_with_pauses() -> None:
    async with running("import sys; sys.exit(3)") as (child, heard):
        await eventually(lambda: child.starts >= 3)
    assert heard.deaths[:2] == ["ended with code 3; starts again in 0.2 s", "ended with code 3; starts again in 0.4 s"]


async def test_a_program_that_is_not_there_is_reported() -> None:
    heard = Heard()
    child = Child(Command("one", ("/nowhere/program",)), heard.line, heard.death)
    task = asyncio.create_task(child.run())
    await eventually(lambda: bool(heard.deaths))
    await child.stop()
    await task
    assert "can't be started (No such file or directory)" in heard.deaths[0]


async def test_a_grandchild_that_holds_the_output_does_not_delay_the_next_start() -> None:
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()']); " + SLEEP
    async with running(code) as (child, heard):
        await eventually(said(heard, 1))
        child.kill()
        await eventually(said(heard, 2))
        assert child.starts == 2


async def test_an_endless_line_comes_in_pieces() -> None:
    async with running(f"print('x' * {3 * LONGEST_LINE_BYTES}, flush=True); import time; time.sleep(60)") as (_, heard):
        await eventually(lambda: len("".join(heard.lines)) == 3 * LONGEST_LINE_BYTES)


async def test_stdin_is_a_pipe_that_closes_with_us() -> None:
    async with running("import sys; print('up', flush=True); sys.stdin.read(); print('alone', flush=True)") as (
        child,
        heard,
    ):
        await eventually(said(heard, 1))
        assert child._process
        assert child._process.stdin
        child._process.stdin.close()
        await eventually(lambda: "alone" in heard.lines)


@pytest.mark.parametrize(
    ("last", "lived", "pause"),
    [(0, 0, FIRST_S), (0.2, 1, 0.4), (8, 1, LONGEST_S), (LONGEST_S, 1, LONGEST_S), (LONGEST_S, 60, FIRST_S)],
)
def test_pauses_double_and_start_afresh_after_a_good_life(last: float, lived: float, pause: float) -> None:
    assert next_pause_s(last, lived) == pause


def test_any_signal_may_be_sent() -> None:
    child = Child(Command("one", ("true",)), lambda *_: None, lambda *_: None)
    child.kill(signal.SIGTERM)
    assert child.pid is None
