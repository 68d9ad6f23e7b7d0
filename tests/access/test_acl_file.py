"""`tokenfleet acl`: the file that is shipped, passwords that never stand in it, and names that it refuses."""

import hashlib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tokenfleet.cli import main as cli

ROOT = Path(__file__).parents[2]
WORKERS = ("worker-1", "worker-2", "worker-gpu")
SHIPPED = ["acl", "--tenant", "default", *(word for label in WORKERS for word in ("--worker", label))]


def run(*arguments: str, stdin: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["acl", *arguments], input=stdin)
    return result.exit_code, result.output


def test_the_shipped_file_is_what_the_command_prints() -> None:
    assert CliRunner().invoke(cli, SHIPPED).output == (ROOT / "deploy" / "redis" / "users.acl").read_text()


def test_the_shipped_file_has_the_workers_of_the_compose_file() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    labels = [
        words[words.index("--label") + 1]
        for name in services
        if "--label" in (words := services[name].get("command", []))
    ]
    assert set(WORKERS) == set(labels)


def test_nobody_can_log_in_without_a_password_of_their_own() -> None:
    lines = (ROOT / "deploy" / "redis" / "users.acl").read_text().splitlines()
    assert lines[0] == "user default on nopass resetkeys resetchannels -@all +ping"
    assert all(line.split()[3] == "resetpass" for line in lines[1:])


def test_passwords_come_out_as_hashes() -> None:
    code, output = run("--tenant", "acme", "--passwords", "-", stdin="\nmetrics look here\nproducer-acme s3cret\n")
    assert code == 0
    assert "look here" not in output
    assert "s3cret" not in output
    users = {line.split()[1]: line.split()[3] for line in output.splitlines()}
    assert users["metrics"] == "#" + hashlib.sha256(b"look here").hexdigest()
    assert users["producer-acme"] == "#" + hashlib.sha256(b"s3cret").hexdigest()
    assert users["scheduler"] == "resetpass"


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (["--tenant", "a b"], "", "invalid tenant"),
        (["--tenant", "*"], "", "invalid tenant"),
        (["--worker", "a ~*"], "", "invalid label"),
        (["--passwords", "-"], "nobody s3cret\n", "no user is called 'nobody'"),
        (["--passwords", "-"], "metrics s3cret\ns3cret\n", "line 2 of the passwords has no password"),
    ],
)
def test_what_is_wrong_is_told_without_a_password(arguments: list[str], stdin: str, told: str) -> None:
    code, output = run(*arguments, stdin=stdin)
    assert code == 2
    assert told in output
    assert "s3cret" not in output
