"""Whoever interrupts a batch hears how far it came: also where nothing had begun."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from producer.batch import Progress
from producer.fleet import Fleet
from protocol.settings import Settings
from tokenfleet.cli.batch.running import shown
from tokenfleet.cli.exits import Exit

NEWS = Progress("b", 50, 50, 3, 0, 47, 0, 0, 0, 0, 1.0, 0.0, 0.0, None, None)


@pytest.mark.parametrize(
    ("news", "begun", "told"),
    [
        (None, False, "nothing has begun; run the same command again"),
        (None, True, "nothing has begun; the same command with --resume goes on"),
        (NEWS, True, "3 of 50 rows are done; the same command with --resume goes on"),
    ],
)
async def test_how_far_it_came(
    valkey: Redis, capsys: pytest.CaptureFixture[str], tmp_path: Path, news: Progress | None, begun: bool, told: str
) -> None:
    target = tmp_path / "out.jsonl"
    if begun:
        target.with_name("out.jsonl.state").touch()

    async def run() -> None:
        async with Fleet(redis=valkey, settings=Settings()) as fleet, shown(fleet, str(target)) as show:
            if news:
                show(news)
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await run()
    assert capsys.readouterr().err.splitlines()[-1] == told


def test_while_redis_is_waited_for_nothing_has_begun() -> None:
    # A shell that runs the tests in the background has them ignore a Ctrl-C.
    heeding = ["env", "--default-signal=INT"]
    command = [*heeding, sys.executable, "-m", "tokenfleet", "batch", "run", "-i", "in", "-o", "out"]
    away = ["--redis-url", "redis://127.0.0.1:1"]
    with subprocess.Popen([*command, *away], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert process.stderr.readline().startswith("waiting for Redis")
        process.send_signal(signal.SIGINT)
        told = process.stderr.read().split("\n")
    assert (process.returncode, told) == (Exit.INTERRUPTED, ["nothing has begun", "", "interrupted", ""])
