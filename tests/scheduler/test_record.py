"""A recording of decisions is bounded, appended to and without prompts; and what `tokenfleet replay` reads of it."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from redis.asyncio import Redis
from structlog.testing import capture_logs

from protocol.errors import SetupError
from scheduler.policy.decide import decide
from scheduler.policy.decision import Decision
from scheduler.policy.order import Targets
from scheduler.policy.policy import Policy
from scheduler.policy.registry import POLICIES
from scheduler.policy.view import FleetView
from scheduler.policy.window import Window
from scheduler.record import Recording
from scheduler.rules import rules_of
from tests.scheduler.policy.build import HIGH, NOW_MS, lane, worker
from tests.scheduler.stage import QUICK, Stage, a_loop
from tests.support.builders import SHARD
from tokenfleet.cli import main as cli
from tokenfleet.cli.exits import Exit

POLICY: Policy = POLICIES["predictive"]


def round_of(jobs: int) -> tuple[FleetView, float, Decision]:
    view = FleetView((lane(HIGH, jobs),), (worker("w1", slots=100), worker("w2", slots=100)))
    return view, NOW_MS, decide(view, NOW_MS, random.Random(0), POLICY, Targets(), Window())


def replayed(file: Path, *options: str) -> Any:
    return CliRunner().invoke(cli, ["replay", str(file), *options])


async def test_a_shard_s_decisions_are_recorded_and_replayed(redis: Redis, stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "night.jsonl"
    recording = Recording(file, 1)
    for name in ("w1", "w2"):
        await stage.join(name)
    async with a_loop(redis, recording=recording):
        for own_id in "abcd":
            await stage.submit(own_id, body=b'{"model": "m", "prompt": "nobody may read this"}')
        await stage.waiting(0)
    recording.close()
    assert b"nobody may read" not in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    said = json.loads(replayed(file, "--policy", "predictive,load-score", "--json").stdout)
    assert (said["recorded"]["policy"], said["recorded"]["starts"]) == ("predictive", 4)
    assert [other["policy"] for other in said["policies"]] == ["predictive", "load-score"]
    assert said["policies"][0]["starts"] == 4
    assert said["policies"][0]["predicted_p50_ms"] > 0


def test_rounds_that_decide_nothing_leave_no_line(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "f", 1)
    recorder = recording.of(SHARD, rules_of(QUICK))
    recorder.after(*round_of(0)[:2], Decision())
    assert (tmp_path / "f").read_bytes() == b""
    for _ in range(2):
        recorder.after(*round_of(2))
    assert len((tmp_path / "f").read_bytes().splitlines()) == 3
    assert "predictive (recorded)" in replayed(tmp_path / "f", "--policy", "kv-cost").stdout
    recording.close()
    recorder.after(*round_of(2))
    assert len((tmp_path / "f").read_bytes().splitlines()) == 3


def test_it_stops_at_its_size_says_so_and_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    with capture_logs() as lines:
        recorder = Recording(file, 1).of(SHARD, rules_of(QUICK))
        for _ in range(200):
            recorder.after(*round_of(200))
    assert [line["event"] for line in lines] == ["recording_full"]
    assert 900_000 < file.stat().st_size <= 1_000_000
    assert replayed(file, "--policy", "least-work").exit_code == 0
    with capture_logs() as lines:
        Recording(file, 1).of(SHARD, rules_of(QUICK)).after(*round_of(200))
    assert [line["event"] for line in lines] == ["recording_full"]


def test_a_later_run_appends_and_a_torn_end_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "f"
    for _ in range(2):
        recording = Recording(file, 1)
        recording.of(SHARD, rules_of(QUICK)).after(*round_of(3))
        recording.close()
    with file.open("ab") as lines:
        lines.write(b'{"s": "pool.0", "t": 1')
    said = json.loads(replayed(file, "--policy", "least-work", "--json").stdout)
    assert (said["rounds"], said["recorded"]["starts"]) == (2, 6)


def test_a_file_that_can_not_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="can't be written"):
        Recording(tmp_path / "none" / "f", 1)
    result = CliRunner().invoke(cli, ["scheduler", "--record", str(tmp_path / "none" / "f")])
    assert (result.exit_code, "can't be written" in result.stderr) == (Exit.INVALID, True)


@pytest.mark.parametrize("text", ["nonsense\n", "[]\n", '{"s": "p.0"}\n'])
def test_what_is_no_recording_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "f"
    file.write_text(text)
    result = replayed(file, "--policy", "least-work")
    assert (result.exit_code, "is no recording: line 1" in result.stderr) == (Exit.INVALID, True)


def test_an_unknown_policy_and_an_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.touch()
    unknown = replayed(file, "--policy", "least-work,best", "--json")
    assert (unknown.exit_code, json.loads(unknown.stdout)["error"]["code"]) == (Exit.INVALID, "invalid_request")
    assert "Nothing was decided" in replayed(file, "--policy", "least-work").stdout
    assert "Nothing was decided" in replayed(file, "--policy", "all").stdout
