"""The operator's page, held against the commands that it tells of."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest

from protocol.settings import Settings
from protocol.states import WorkerState
from tokenfleet.cli import main as cli
from tokenfleet.cli.dead import command as dead
from tokenfleet.cli.worker import command as worker
from tokenfleet.cli.workers import command as workers

PAGE = (Path(__file__).parents[2] / "docs" / "operators.md").read_text()
OTHER_VARIABLES = {"TOKENFLEET_VLLM_MODEL", "TOKENFLEET_VLLM_PYTHON", "TOKENFLEET_VLLM_FLAGS"}


def rows(section: str) -> list[str]:
    """The first cell of each row of a section's table."""
    text = PAGE.split(f"\n## {section}\n")[1].partition("\n## ")[0]
    cells = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    return cells[2:]


def code_lines() -> Iterator[str]:
    blocks = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return (line for block in blocks for line in block.splitlines())


COMMANDS = [line.partition("tokenfleet ")[2] for line in code_lines() if re.match(r"([A-Z_]+=\S+ )*tokenfleet ", line)]


def test_every_flag_of_the_worker_is_explained_and_no_other() -> None:
    flags = {flag for row in rows("The flags") for flag in re.findall(r"`(--[a-z-]+)`", row)}
    options = {option for parameter in worker.params for option in parameter.opts if option.startswith("--")}
    assert flags == options


def test_every_state_is_explained() -> None:
    assert sorted(row.strip("`") for row in rows("States, and how to read them")) == sorted(get_args(WorkerState))


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_page_is_one(line: str) -> None:
    command: click.Command = cli
    words = shlex.split(line)
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found, line
        command = found
    command.make_context(command.name, words).close()


@pytest.mark.parametrize("group", [workers, dead])
def test_every_word_to_workers_and_dead_jobs_is_shown(group: click.Group) -> None:
    assert group.commands.keys() == {
        words[1] for words in map(str.split, COMMANDS) if words[0] == group.name and len(words) > 1
    }


def test_every_variable_is_a_setting() -> None:
    named = re.findall(r"TOKENFLEET_\w+", PAGE)
    known = OTHER_VARIABLES | {f"TOKENFLEET_{name.upper()}" for name in Settings.model_fields}
    # Each may also come from a file.
    assert {name.removesuffix("_FILE") if name not in known else name for name in named} <= known
