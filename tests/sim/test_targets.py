"""What the simulation and the chaos run hold against their figures."""

from pathlib import Path

import pytest

from bench.chaos.journal import Fact
from bench.chaos.monkey import Cut
from bench.chaos.plan import LEASE_S, SLACK_S, Plan
from bench.chaos.verdict import Left, Seen, recoveries, targets
from bench.report import Target, show
from bench.sim.__main__ import pace
from protocol.wire import loads

NOBODY = frozenset[int]()


def chaos(folder: Path, recovered: list[float]) -> dict[str, Target]:
    plan = Plan(folder, "redis://", jobs=0, poison=0)
    rows = targets(plan, Seen((), ()), Left(NOBODY, 0, ()), recovered)
    return {row.name: row for row in rows}


def test_a_chaos_run_in_which_nothing_was_seen_to_recover_has_missed_its_target(tmp_path: Path) -> None:
    first = Fact("first", 7, at_s=12.5, attempt=2)
    assert recoveries([Cut(7, 1, 10.0)], Seen((), [first]), NOBODY) == [2.5]
    seen = chaos(tmp_path, [2.5])["recovery p99, s"]
    assert (seen.value, seen.met) == (2.5, True)
    late = chaos(tmp_path, [LEASE_S + SLACK_S + 0.1])["recovery p99, s"]
    assert not late.met
    none = chaos(tmp_path, [])["recovery p99, s"]
    assert (none.value, none.met) == (None, False)


def test_what_was_not_measured_is_shown_as_missed(capsys: pytest.CaptureFixture[str]) -> None:
    show("t", [Target("a", None, 5.0, "lower")], {}, as_json=True)
    told = loads(capsys.readouterr().out.splitlines()[-1])
    assert told["targets"] == [{"name": "a", "value": None, "target": 5.0, "met": False}]


@pytest.mark.parametrize(("took_s", "value", "met"), [(120.0, 1_200.0, True), (121.0, 1_210.0, False)])
def test_the_simulation_s_pace_is_a_target(took_s: float, value: float, met: bool) -> None:
    row = pace(200, took_s)
    assert row.value == pytest.approx(value)
    assert row.met is met
