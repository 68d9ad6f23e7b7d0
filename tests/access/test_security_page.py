"""The page on security, held against settings, users, commands and the groups of `make security`."""

import re
import shlex
from pathlib import Path

import click

from bench.security import GROUPS
from protocol.access import users
from protocol.settings import Settings
from tokenfleet.cli import main as cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()


def test_every_variable_is_a_setting() -> None:
    names = {name.removesuffix("_FILE") for name in re.findall(r"TOKENFLEET_[A-Z_]+[A-Z]", PAGE)}
    assert names - {"TOKENFLEET_"} <= {f"TOKENFLEET_{name.upper()}" for name in Settings.model_fields}
    assert len(names) > 10


def test_every_user_is_explained_and_no_other() -> None:
    made = users(["TENANT".lower()], ["label"])
    names = {re.sub("-(tenant|label)$", lambda found: found[0].upper(), name) for name in made} | {"operator"}
    section = PAGE.partition("| user | may |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)) == names


def test_every_command_is_one() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("tokenfleet ")]
    assert lines
    for line in lines:
        name, *words = shlex.split(line)[1:]
        command = cli.get_command(click.Context(cli), name)
        assert command
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_the_tests_of_make_security_are_there() -> None:
    paths = [ROOT / "tests" / word for words in GROUPS.values() for word in words.split()]
    assert [path for path in paths if not path.exists()] == []
    listed = {path.name for path in paths}
    assert {path.name for path in (ROOT / "tests" / "access").glob("test_*.py")} - listed == {Path(__file__).name}
