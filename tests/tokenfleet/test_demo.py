"""The demo from its command to its last line; the simulated engine stands for the model."""

import json
import re
from importlib.resources import files

import psutil
import pytest
from click.testing import CliRunner

from producer.bodies import check
from tokenfleet.cli import demo
from tokenfleet.cli import main as cli
from tokenfleet.cli.exits import Exit
from tokenfleet.demo.chat import QUESTION

ROWS = [json.loads(line) for line in (files("tokenfleet.demo") / "prompts.jsonl").read_text().splitlines()]


def test_the_prompts_are_a_valid_batch() -> None:
    assert len(ROWS) >= 20
    assert len({row["custom_id"] for row in ROWS}) == len(ROWS)
    assert QUESTION in [row["body"]["messages"][0]["content"] for row in ROWS]
    for row in ROWS:
        assert (row["method"], row["url"]) == ("POST", "/v1/chat/completions")
        check(row["url"], row["body"], max_bytes=10_000)


def fleet_processes() -> set[psutil.Process]:
    """Those that run below this one; other tests' fixtures may have some."""
    return {child for child in psutil.Process().children(recursive=True) if "tokenfleet" in command_of(child)}


def command_of(process: psutil.Process) -> str:
    """Empty when it has ended, which any may do meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def test_it_shows_a_batch_and_a_chat_that_overtakes_it() -> None:
    before = fleet_processes()
    result = CliRunner().invoke(cli, ["demo", "--engine", "sim", "--slots", "2", "--json"])
    assert result.exit_code == Exit.CLEAN, result.output
    figures = json.loads(result.stdout.splitlines()[-1])
    assert (figures["rows_in"], figures["rows_out"], figures["rows_failed"]) == (len(ROWS), len(ROWS), 0)
    assert set(figures["ttft_ms"]) == set(figures["queue_ms"]) == {"high", "medium"}
    assert sum(figures["jobs_by_worker"].values()) == len(ROWS) + 1
    assert set(figures["jobs_by_worker"]) == {"worker-1", "worker-2"}
    assert figures["overtook"] > 0
    assert figures["answer"]
    assert re.search(r"chat +" + re.escape(figures["answer"]), result.stderr)
    assert fleet_processes() <= before


def test_a_wrong_answer_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "EXPECTED", {"sim": "Paris"})
    result = CliRunner().invoke(cli, ["demo", "--engine", "sim"])
    assert result.exit_code == Exit.FAILED
    assert "the demo failed: the chat's answer does not name Paris" in result.stderr
    assert "How long they waited" in result.stdout
