"""kill -9, SIGTERM and a full disk for `tokenfleet batch run` as a process: each row ends up with exactly one line."""

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.failpoints import VARIABLE
from tests.support.waiting import eventually
from tokenfleet.cli.exits import Exit
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

ROWS = 60
MODEL = "demo"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with EmbeddedFleet(FleetOptions(engine="sim", model=MODEL, sim_speed=20)) as embedded:
        await embedded.ready(60)
        yield embedded.redis_url


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    write(path)
    return path


def write(path: Path, max_tokens: int = 8, rows: int = ROWS) -> None:
    path.write_text("".join(_row(n, max_tokens) + "\n" for n in range(rows)))


def _row(number: int, max_tokens: int) -> str:
    body = {
        "model": MODEL,
        "prompt": f"row {number // 2}",
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    return json.dumps({"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": body})


class Cli:
    """The command on one pair of files."""

    def __init__(self, url: str, source: Path, target: Path, *more: str) -> None:
        self.url, self.source, self.target = url, source, target
        self.files = ["-i", str(source), "-o", str(target), *more]

    async def start(self, *more: str, failpoints: str = "") -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "tokenfleet", "batch", "run", *self.files, *more, "--redis-url", self.url]
        env = {**os.environ, VARIABLE: failpoints}
        return await asyncio.create_subprocess_exec(*command, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE)

    async def run(self, *more: str, failpoints: str = "") -> tuple[int, str]:
        """Exit code and stderr."""
        child = await self.start(*more, failpoints=failpoints)
        _, said = await child.communicate()
        return child.returncode or 0, said.decode()

    def unproven(self) -> str:
        """What the files alone say: nothing where each row has exactly one line."""
        files = [str(self.source), *(path for path in self.files[3:] if not path.startswith("-") and path != "input")]
        command = [sys.executable, "-m", "tokenfleet", "batch", "reconcile", *files]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return "" if done.returncode == Exit.CLEAN else done.stdout + done.stderr

    def lines(self) -> int:
        return self.target.read_bytes().count(b"\n") if self.target.exists() else 0


@pytest.mark.parametrize("more", [(), ("--order", "input"), ("--dedup",)], ids=["completion", "input", "dedup"])
async def test_a_runner_that_is_killed_at_its_worst_moments_loses_and_doubles_nothing(
    url: str, source: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    # Each of the six may write two windows before it is killed, where the machine is slow.
    write(source, rows=3 * ROWS)
    cli = Cli(url, source, tmp_path / "out.jsonl", *more)
    points = [
        f"producer.{point}=kill@{nth}" for nth in (1, 2) for point in ("in_line", "before_commit", "after_commit")
    ]
    for failpoint in points:
        code, said = await cli.run("--resume", "--window", "12", failpoints=failpoint)
        assert code == -signal.SIGKILL, said
    code, said = await cli.run("--resume")
    assert code == Exit.CLEAN, said
    assert not cli.unproven()
    assert "rows of earlier runs" in said


async def test_a_runner_that_is_killed_at_any_moment_is_resumed(url: str, source: Path, tmp_path: Path) -> None:
    write(source, max_tokens=100)
    cli = Cli(url, source, tmp_path / "out.jsonl")
    for rows in (0, ROWS // 4, ROWS // 2):
        child = await cli.start("--resume", "--window", "16")
        await eventually(lambda rows=rows: cli.lines() > rows, timeout_s=30)  # type: ignore[misc]  # bound at once
        child.kill()
        await child.communicate()
    assert (await cli.run("--resume"))[0] == Exit.CLEAN
    assert not cli.unproven()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_closes_the_files_and_resume_goes_on(
    url: str, source: Path, tmp_path: Path, sign: signal.Signals
) -> None:
    """With everything in flight: the rows are withdrawn, each has its line, and none of that is in the way later."""
    write(source, max_tokens=4_000)
    errors = tmp_path / "err.jsonl"
    cli = Cli(url, source, tmp_path / "out.jsonl", "--errors", str(errors))
    child = await cli.start("--model", MODEL)
    await eventually(cli.target.exists, timeout_s=20)
    child.send_signal(sign)
    _, said = await child.communicate()
    assert child.returncode == Exit.INTERRUPTED, said
    assert b"--resume goes on" in said
    assert b"Traceback" not in said
    assert not cli.unproven()
    told = [json.loads(line)["error"]["code"] for line in errors.read_text().splitlines()]
    assert set(told) == {"batch_cancelled"}
    assert len(told) + cli.lines() == ROWS

    code, said_then = await cli.run("--model", MODEL, "--resume", "--deadline", "1s")
    assert code == Exit.FAILED, said_then
    assert "never ended" in said_then
    assert "--resume --deadline 6h" in said_then
    assert not cli.unproven()


SMALL_DISK = """
mount -t tmpfs -o size=160k tmpfs "$DISK" || exit 77
again() { "$PYTHON" -m tokenfleet batch run -i "$IN" -o "$DISK/out.jsonl" --redis-url "$URL" "$@"; }
again --window 8 2>"$SAID" || echo $?
cat "$DISK/out.jsonl" 2>/dev/null | tail -c 1 | wc -l
mount -o remount,size=64m "$DISK" && again --resume 2>/dev/null || echo $?
"$PYTHON" -m tokenfleet batch reconcile "$IN" "$DISK/out.jsonl"
"""
"""In a mount namespace of its own: a disk that fills up under the output and the state, and is enlarged."""


async def test_a_disk_that_is_full_is_told_and_what_stands_is_resumed(url: str, source: Path, tmp_path: Path) -> None:
    """In the middle of the rows: one line of words, no torn line, and each row once in the end."""
    write(source, max_tokens=300)
    disk, said = tmp_path / "disk", tmp_path / "said"
    disk.mkdir()
    variables = {"DISK": str(disk), "PYTHON": sys.executable, "IN": str(source), "SAID": str(said)}
    command = ["unshare", "--user", "--map-root-user", "--mount", "/bin/bash", "-c", SMALL_DISK]
    child = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **variables, "URL": url}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    printed, failed = await child.communicate()
    if b"unshare" in failed or child.returncode == 77:
        pytest.skip("no file system can be mounted here")
    code, whole, *_, last = printed.decode().splitlines()
    assert int(code) == Exit.UNAVAILABLE, said.read_text()
    assert int(whole) == 1, "its last byte is a newline"
    assert said.read_text().splitlines()[-1].startswith("error: ")
    assert "full" in said.read_text() or "No space left" in said.read_text()
    assert "Traceback" not in said.read_text()
    assert last == f"proven: each of {ROWS} rows has exactly one line"


async def test_dashes_on_both_ends(url: str, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    line = '"$0" -m tokenfleet batch run -i - -o - --order input --redis-url "$1" --json < "$2" | tee "$3"'
    command = ["/bin/bash", "-o", "pipefail", "-c", line, sys.executable, url, str(source), str(target)]
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    printed, said = await child.communicate()
    assert child.returncode == Exit.CLEAN, said
    lines, told = [json.loads(line) for line in printed.splitlines()], json.loads(said.splitlines()[-1])
    assert [line["custom_id"] for line in lines] == [f"r{n}" for n in range(ROWS)]
    assert (told["state"], told["rows_out"]) == ("completed", ROWS)


async def test_gzip_on_both_ends(url: str, tmp_path: Path) -> None:
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(gzip.compress("".join(_row(n, 8) + "\n" for n in range(ROWS)).encode()))
    cli = Cli(url, packed, tmp_path / "out.jsonl.gz", "--order", "input")
    code, said = await cli.run()
    assert code == Exit.CLEAN, said
    assert not cli.unproven()
    beside = {path.name.removeprefix("out.jsonl.gz") for path in tmp_path.glob("out*")}  # noqa: ASYNC240 - a small folder
    assert beside == {"", ".state", ".input"}
