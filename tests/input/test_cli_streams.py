"""Commands whose stdin, stdout or arguments are not what they should be: a line and an exit code, never a traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from redis import Redis

from protocol.call import run_sync
from protocol.functions import register
from protocol.messages import ModelRecord
from tests.input.values import CANARY
from tokenfleet.cli import main as cli
from tokenfleet.cli.exits import Exit

COMMAND = f'"{sys.executable}" -m tokenfleet'


@pytest.fixture(scope="module", autouse=True)
def _needs_a_full_device() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")


def shell(line: str, url: str = "redis://127.0.0.1:1/0", **more: str) -> "subprocess.CompletedProcess[str]":
    """Runs a line in which `T` is the command."""
    environment = {**os.environ, "TOKENFLEET_REDIS_URL": url, "TOKENFLEET_REDIS_PATIENCE_S": "5", **more}
    script = f'set -o pipefail; T() {{ {COMMAND} "$@"; }}; {line}'
    return subprocess.run(
        ["/bin/bash", "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def fleet_url(valkey_url: str) -> str:
    with Redis.from_url(valkey_url) as client:
        run_sync(client, register("m", ModelRecord(pool="m")))
    return valkey_url


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("T --help > /dev/full", Exit.UNAVAILABLE, "error: the output can't be written: No space left on device"),
        ("T status > /dev/full", Exit.UNAVAILABLE, "error: the output can't be written: No space left on device"),
        ("T status --nope --json > /dev/full", Exit.UNAVAILABLE, "error: the output can't be written: No space"),
        (
            "echo x | T batch run -i - -o /dev/full --on-invalid skip",
            Exit.UNAVAILABLE,
            "error: the output can't be written: No space",
        ),
        (
            "echo x | T batch run -i - -o - --on-invalid skip > /dev/full",
            Exit.UNAVAILABLE,
            "error: the output can't be written: No spa",
        ),
        ("T batch run -i - -o /dev/null <&-", Exit.INVALID, "error: stdin is closed"),
        ("T batch run -i /dev/null -o - >&-", Exit.INVALID, "error: stdout is closed"),
        ("T submit - <&-", Exit.INVALID, "error: stdin is closed"),
        ("T submit --body - <&-", Exit.INVALID, "error: stdin is closed"),
        ("printf '\\377' | T submit -", Exit.INVALID, "error: stdin is not UTF-8 at byte 0"),
        ("T status >&-", Exit.CLEAN, ""),
        ("T worker --engine sim --model $'\\377'", Exit.INVALID, "error: invalid model: use 1 to 256 printable"),
    ],
)
def test_a_stream_that_is_full_or_closed(fleet_url: str, line: str, code: int, says: str) -> None:
    done = shell(line, fleet_url)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("line", ["T --help", "T batch run -i - -o - --on-invalid skip"])
def test_a_closed_pipe_ends_quietly(fleet_url: str, line: str) -> None:
    done = shell(f"yes | head -20000 | {line} | head -0; echo ${{PIPESTATUS[2]}}", fleet_url)
    assert done.stdout.split() == [str(int(Exit.CLOSED_PIPE))]
    # Lines that are no requests are named before the pipe is met; of its end nothing is said.
    assert not [said for said in done.stderr.splitlines() if not said.startswith(("rows ", "-:", "… and 19900 more"))]


def test_what_the_encoding_lacks_is_escaped(fleet_url: str) -> None:
    done = shell("T status && T --help", fleet_url, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (Exit.CLEAN, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--nope", "--json"],
        ["--nope", "--json"],
        ["nope", "--json"],
        ["submit", "--priority", CANARY, "--json"],
        ["submit", "--json", "--max-tokens", "0", "x"],
        ["job", "--json"],
        ["job", "\udcff", "--json"],
        ["submit", "--json", "--body", "/no/such/file"],
        ["submit", "--json", "--body", "/"],
        ["dead", "show", "--json", "x", "--nope"],
    ],
)
def test_errors_of_every_kind_are_json_when_asked(arguments: Sequence[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, result.stderr) == (Exit.INVALID, "")
    assert set(json.loads(result.stdout)["error"]) == {"code", "message", "hint"}


def test_a_json_word_after_the_options_end_asks_for_nothing() -> None:
    result = CliRunner().invoke(cli, ["job", "--nope", "--", "--json"])
    assert (result.exit_code, result.stdout) == (Exit.INVALID, "")


def test_input_without_an_end_is_refused(fleet_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tokenfleet.cli.streams.MOST_INPUT_BYTES", 10)
    file = tmp_path / "body.json"
    file.write_text("x" * 11)
    for arguments, stdin in ((["-"], "x" * 11), (["--body", "-"], "x" * 11), (["--body", str(file)], "")):
        result = CliRunner().invoke(cli, ["submit", *arguments, "--json"], input=stdin)
        assert json.loads(result.stdout)["error"]["code"] == "too_large"


def test_a_terminal_gets_no_control_characters() -> None:
    result = CliRunner().invoke(cli, ["status", "--redis-url", "redis://\x1b[31m:1"])
    assert result.exit_code != 0
    assert "\x1b[31m" not in result.stderr
