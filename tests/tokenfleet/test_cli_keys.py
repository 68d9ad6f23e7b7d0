"""`tokenfleet keys` on a real server: the key is shown once, and lists and errors never have it."""

import json

import pytest
from click.testing import CliRunner
from click.testing import Result as Ran

from tokenfleet import terminal
from tokenfleet.cli import main as cli
from tokenfleet.cli.exits import Exit

MADE = (
    "--tenant",
    "acme",
    "--priority",
    "low",
    "--model",
    "m",
    "--requests",
    "60",
    "--jobs",
    "2",
    "--note",
    "web shop",
)


@pytest.fixture(autouse=True)
def _store(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", valkey_url)
    monkeypatch.setenv("COLUMNS", "200")


def ran(*arguments: str) -> Ran:
    return CliRunner().invoke(cli, ["keys", *arguments])


def said_json(*arguments: str) -> list[dict[str, object]]:
    result = ran(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_stdout_has_the_key_alone_and_the_list_all_but_the_key() -> None:
    made = ran("create", *MADE)
    assert made.exit_code == 0, made.output
    secret = made.stdout.removesuffix("\n")
    assert secret.startswith("tf-")
    assert "60 requests/min, 2 jobs" in made.stderr
    assert secret not in made.stderr
    (row,) = said_json("list")
    assert row.pop("created_ms")
    assert row == {
        "id": row["id"],
        "tenant": "acme",
        "priorities": ["low"],
        "models": ["m"],
        "limits": {"requests_a_minute": 60, "tokens_a_minute": 0, "jobs": 2, "bytes": 0},
        "operator": False,
        "revoked_ms": 0,
        "last_four": secret[-4:],
        "note": "web shop",
    }
    shown = ran("list").stdout
    for part in (str(row["id"]), f"…{secret[-4:]}", "acme", "low; m", "60 requests/min, 2 jobs", "web shop"):
        assert part in shown
    assert secret[:-4] not in shown


def test_an_id_stays_whole_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(terminal, "stdout_is_terminal", lambda: True)
    (made,) = said_json("create", *MADE)
    assert str(made["id"]) in ran("list").stdout


def test_json_has_the_key_once() -> None:
    (made,) = said_json("create")
    assert str(made.pop("key")).startswith("tf-")
    assert said_json("list") == [made]
    assert made["tenant"] == "default"
    assert made["priorities"] == ["high", "medium", "low"]


def test_a_key_is_revoked_by_its_id() -> None:
    (made,) = said_json("create")
    key_id = str(made["id"])
    assert ran("revoke", key_id).stdout == f"{key_id}  revoked\n"
    (row,) = said_json("list")
    assert row["revoked_ms"]
    assert said_json("revoke", key_id) == [row]


def test_without_keys_the_list_says_so() -> None:
    assert ran("list").stdout == "no key was created\n"
    assert said_json("list") == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["revoke", "nobody"], "unknown_key"),
        (["create", "--tenant", "a b"], "invalid_id"),
        (["create", "--note", "\x1b[2J"], "invalid_request"),
        (["create", "--requests", "-1"], "usage"),
        (["create", "--priority", "urgent"], "usage"),
    ],
)
def test_what_is_wrong_is_a_typed_error(arguments: list[str], code: str) -> None:
    result = ran(*arguments, "--json")
    assert result.exit_code == Exit.INVALID
    assert json.loads(result.stdout)["error"]["code"] == code
