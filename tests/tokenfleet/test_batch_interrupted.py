"""Whoever interrupts a batch hears how far it came: also where nothing had begun."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from producer.batch import Progress
from producer.fleet import Fleet
from protocol.settings import Settings
from tests.producer.batch_files import row
from tokenfleet.cli.batch.running import shown
from tokenfleet.cli.exits import Exit
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

# A shell that runs the tests in the background has them ignore a Ctrl-C.
HEEDING = ["env", "--default-signal=INT", sys.executable, "-m", "tokenfleet"]
NEWS = Progress("b", 50, 50, 3, 0, 47, 0, 0, 0, 0, 1.0, 0.0, 0.0, None, None)


def run(*command: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([*HEEDING, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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

    async def interrupted() -> None:
        async with Fleet(redis=valkey, settings=Settings()) as fleet, shown(fleet, str(target), []) as (show, _):
            if news:
                show(news)
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await interrupted()
    assert capsys.readouterr().err.splitlines()[-1] == told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_redis_is_waited_for_nothing_has_begun(number: signal.Signals) -> None:
    away = ["--redis-url", "redis://127.0.0.1:1"]
    with run("batch", "run", "-i", "in", "-o", "out", *away) as process:
        assert process.stderr
        assert process.stderr.readline().startswith("waiting for Redis")
        process.send_signal(number)
        told = process.stderr.read().split("\n")
    assert (process.returncode, told) == (Exit.INTERRUPTED, ["nothing has begun", "", "interrupted", ""])


@pytest.mark.parametrize("command", [["batch", "run", "-i", "in", "-o", "out"], ["status"]])
def test_as_json_it_is_an_error_that_nothing_has_begun(command: list[str]) -> None:
    with run(*command, "--json", "--redis-url", "redis://127.0.0.1:1") as process:
        assert process.stdout
        assert process.stderr
        assert process.stderr.readline().startswith("waiting for Redis")
        process.send_signal(signal.SIGINT)
        told = json.loads(process.stdout.read())
    assert (process.returncode, told["error"]["code"]) == (Exit.INTERRUPTED, "interrupted")


@pytest.mark.parametrize(("number", "target"), [(signal.SIGTERM, "out"), (signal.SIGINT, "-")])
async def test_as_json_the_figures_so_far_are_the_last_line(
    tmp_path: Path, number: signal.Signals, target: str
) -> None:
    source, out = tmp_path / "in.jsonl", target if target == "-" else str(tmp_path / target)
    source.write_text("no request\n" + "".join(row(f"r{n}", "Hello", model="demo") + "\n" for n in range(50)))
    async with EmbeddedFleet(FleetOptions(engine="sim", model="demo", sim_speed=0.1)) as embedded:
        await embedded.ready(60)
        where = ["--redis-url", embedded.redis_url, "--on-invalid", "skip", "--json"]
        with run("batch", "run", "-i", str(source), "-o", out, *where) as process:
            assert process.stderr
            while not process.stderr.readline().startswith("rows "):
                pass
            process.send_signal(number)
            rows, told = process.communicate(timeout=30)
    last = (told if target == "-" else rows).splitlines()[-1]
    figures = json.loads(last)
    assert process.returncode == Exit.INTERRUPTED
    assert (figures["state"], figures["rows_in"], figures["rows_out"]) == ("cancelled", 51, 1)
    assert (figures["rows_bad"], figures["rows_unfinished"]) == (1, 50)
    assert len(rows.splitlines()) == (51 if target == "-" else 1)
