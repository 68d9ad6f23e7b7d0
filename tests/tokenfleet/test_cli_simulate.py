"""`tokenfleet simulate` from its options to its figures."""

import json
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner, Result

from protocol.settings import Admission
from tokenfleet.cli import main as cli

TRACE = "timestamp_ms,client,input_length,output_length\n" + "".join(f"{n * 50},1,{200 + n},20\n" for n in range(60))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "calls.csv"
    path.write_text(TRACE, encoding="utf-8")
    return str(path)


def simulate(*words: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", *words])


def test_one_object_with_a_run_for_each_policy(trace: str) -> None:
    trouble = ["--slow", "1:0.5", "--kill", "w1@1s", "--join", "w5@500ms", "--cancel-share", "0.2", "--offline", "5"]
    words = ["--trace", trace, "--policy", "predictive,round-robin", *trouble, "--json"]
    first, second = (json.loads(simulate(*words).stdout.splitlines()[-1]) for _ in range(2))
    assert first == second
    assert set(first["runs"]) == {"predictive", "round-robin"}
    run = first["runs"]["predictive"]
    assert (run["requests"], run["unfinished"]) == (65, 0)
    assert set(run["utilisation"]) == {"w1", "w2", "w3", "w4", "w5"}
    assert run["first_ms"].keys() == {"p50", "p99"}


def test_tables_for_people(trace: str) -> None:
    output = simulate("--trace", trace, "--policy", "all", "--scale", "2").output
    for part in ("calls ×2: 60 requests", "goodput", "load-score", "w4"):
        assert part in output


def test_each_admission_can_be_chosen(trace: str) -> None:
    """Those of the setting: what one of them does is the scheduler's to test."""
    for admission in get_args(Admission):
        assert simulate("--trace", trace, "--limit", "5", "--admission", admission).exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "nonsense"], "there is no policy 'nonsense'"),
        (["--trace", "nonsense.csv"], "can't be read"),
        (["--kill", "w1"], "write w1@30s"),
        (["--kill", "w1@soon"], "is no duration"),
        (["--kill", "w77@1s"], "no worker is called w77"),
        (["--join", "w1@1s"], "is there from the start"),
        (["--slow", "5:0.5"], "more workers are slow than there are"),
        (["--slow", "half"], "write 2:0.5"),
        (["--slow", "1:0.0000001"], "write 2:0.5"),
        (["--slow", "1:" + "9" * 400], "write 2:0.5"),
        (["--slow", "\u0663:1"], "write 2:0.5"),
        (["--scale", "nan"], "is no number"),
        (["--scale", "1e-308"], "not in the range"),
        (["--report-ms", "nan"], "is no number"),
        (["--report-ms", "inf"], "not in the range"),
        (["--cancel-share", "nan"], "is no number"),
        (["--kill", "w1@1s", "--kill", "w1@2s"], "names a worker twice"),
        (["--sim-profile", "instant"], "no engine is simulated as 'instant'"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], message: str) -> None:
    result = simulate(*words)
    assert result.exit_code == 2
    assert message in result.output


def test_a_stand_in_for_a_missing_trace_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACES", str(tmp_path))
    result = simulate("--trace", "servegen", "--limit", "50", "--json")
    assert "GENERATED" in result.stderr
    report = json.loads(result.stdout.splitlines()[-1])
    assert "ServeGen" in report["missing"]
    assert report["runs"]["predictive"]["requests"] == 50
