"""Every command teaches, and ends with an exit code of the table."""

import inspect
import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from protocol import errors
from protocol.errors import FleetError
from tokenfleet.cli import main as cli
from tokenfleet.cli.app import LazyGroup
from tokenfleet.cli.exits import Exit, exit_of, explained

OPERATING = tuple(f"workers {word}" for word in ("list", "promote", "rest", "sleep", "wake", "drain"))
REVIVING = ("dead list", "dead show", "dead replay")
KEYS = ("keys create", "keys list", "keys revoke")
JOBS = ("submit", "follow", "cancel", "job", "explain")
FILES = ("batch run", "batch validate", "batch reconcile")
BATCHES = tuple(f"batch {word}" for word in ("submit", "list", "show", "watch", "cancel", "results", "delete"))
PRINTING = (
    "demo",
    "up",
    *JOBS,
    "status",
    "top",
    "doctor",
    *OPERATING,
    *REVIVING,
    *KEYS,
    "simulate",
    "replay",
    *FILES,
    *BATCHES,
)
COMMANDS = ("scheduler", "worker", "acl", "batch-runner", "gateway", *PRINTING)
HEAVY = ("arq", "redis", "pydantic", "structlog", "rich", "numpy", "xllamacpp", "aiohttp", "psutil", "uvloop")


def loaded_by(*arguments: str) -> set[str]:
    """Which heavy packages a command line loads."""
    code = (
        "import sys\nfrom tokenfleet.cli import main\n"
        f"try: main({list(arguments)!r})\nexcept SystemExit: pass\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(command: str) -> None:
    result = CliRunner().invoke(cli, [*command.split(), "--help"])
    assert result.exit_code == 0, result.output
    for part in ("Example", f"tokenfleet {command}", "Exit codes:"):
        assert part in result.output


@pytest.mark.parametrize("url", ["redis://me:hush@host", "redis://:hush@host/0", "unix:///s?password=hush"])
def test_a_password_on_the_command_line_is_refused(url: str) -> None:
    for words in (["status", "--redis-url", url], ["worker", "--model", "m", "--redis-url", url, "--json"]):
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == Exit.INVALID
        assert "hush" not in result.output
    assert "TOKENFLEET_REDIS_PASSWORD_FILE" in CliRunner().invoke(cli, ["status", "--redis-url", url]).output


@pytest.mark.parametrize("command", PRINTING)
def test_what_prints_can_print_json(command: str) -> None:
    assert "--json" in CliRunner().invoke(cli, [*command.split(), "--help"]).output


def test_the_overview_lists_every_command_and_the_exit_codes() -> None:
    output = CliRunner().invoke(cli, ["--help"]).output
    assert all(f"  {command.split()[0]} " in output for command in COMMANDS)
    assert explained() in output.replace("\n  ", "\n")


def test_the_overview_is_the_commands_own_story() -> None:
    assert isinstance(cli, LazyGroup)
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.name == name


@pytest.mark.parametrize("arguments", [["--help"], ["submit", "--help"], ["follow", "nonsense"]])
def test_help_and_refusals_load_nothing_heavy(arguments: list[str]) -> None:
    assert loaded_by(*arguments) == set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command"),
        (["sumbit", "Hello"], "No such command 'sumbit'. Did you mean 'submit'?"),
        (["batch", "result"], "Did you mean 'results'?"),
        (["submit", "--deadline", "soon", "x"], "is no duration: write 90s, 5m, 6h or 1h30m"),
        (["submit", "--priority", "urgent", "x"], "'urgent' is not one of"),
        (["follow"], "Missing argument 'HANDLE'"),
        (["submit"], "error: give either a PROMPT or --body"),
        (["job", "nonsense"], "error: invalid handle"),
        (["job", f"pool.{'9' * 5000}.t.a"], "error: invalid handle"),
        (["status", "--redis-url", "nonsense"], "error: malformed Redis URL"),
        (["status", "--redis-url", "redis://[::1"], "error: malformed Redis URL"),
        (["status", "--log-level", "loud"], "'loud' is not one of"),
        (["workers", "drain"], "Missing argument 'ID'"),
        (["dead", "show", "nonsense"], "error: invalid handle"),
        (["replay", "no-such-file", "--policy", "least-work"], "no-such-file' does not exist"),
        (["explain"], "Missing argument 'HANDLE'"),
        (["dead", "replay"], "error: give either handles or --all"),
        (["dead", "replay", "--pool", "p"], "error: give either handles or --all"),
    ],
)
def test_bad_usage_is_code_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, result.stdout) == (Exit.INVALID, "")
    assert message in result.stderr


def test_errors_are_json_when_asked() -> None:
    result = CliRunner().invoke(cli, ["job", "nonsense", "--json"])
    assert result.exit_code == Exit.INVALID
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "invalid_id"
    assert set(error) == {"code", "message", "hint"}


def test_usage_errors_are_json_when_asked() -> None:
    result = CliRunner().invoke(cli, ["submit", "--json", "--deadline", "soon", "x"])
    assert result.exit_code == Exit.INVALID
    assert json.loads(result.stdout)["error"]["code"] == "usage"


def test_no_redis_is_code_4_and_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFLEET_REDIS_PATIENCE_S", "0")
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", "redis://me:secret@127.0.0.1:1/0")
    result = CliRunner().invoke(cli, ["status"])
    assert result.exit_code == Exit.UNAVAILABLE
    assert "error: no Redis answers at redis://127.0.0.1:1/0" in result.stderr
    assert "secret" not in result.output


def test_an_invalid_setting_is_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFLEET_LEASE_S", "-1")
    result = CliRunner().invoke(cli, ["status"])
    assert (result.exit_code, "lease_s" in result.stderr) == (Exit.INVALID, True)


def test_flags_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFLEET_REDIS_PATIENCE_S", "0")
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", "redis://127.0.0.1:2/0")
    result = CliRunner().invoke(cli, ["status", "--redis-url", "redis://127.0.0.1:3/0"])
    assert "redis://127.0.0.1:3/0" in result.stderr


def test_every_error_has_an_exit_code() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, FleetError)]
    made = (kind(()) if kind is errors.BatchInvalid else kind("message") for kind in kinds)
    assert {exit_of(error) for error in made} == {Exit.INVALID, Exit.UNAVAILABLE}
    assert exit_of(errors.StoreUnavailable("away")) is Exit.UNAVAILABLE
    assert exit_of(errors.InvalidId("bad")) is Exit.INVALID
