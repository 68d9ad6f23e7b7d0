"""Online jobs that can't meet their targets where nobody is refused: what is left is theirs, and they end some time."""

import math
from dataclasses import replace

import pytest

from scheduler.policy.decision import LATE_PARK, LATE_PARK_MS, LATEST_PARK_MS, Decision, Park, ParkReason
from scheduler.policy.order import LATE_TURN, Targets
from scheduler.policy.view import FLOW_MS, HEADS, Flow, JobView, WorkerView
from tests.scheduler.policy.build import HIGH, NOW_MS, REFUSING, TARGETS, choose, job, lane, refs, worker


def flowing(share: float, name: str = "w") -> WorkerView:
    """It streams, and new prompts have taken this share of its time within the last second."""
    return replace(worker(name, held=10, slots=64), flow=Flow(share * FLOW_MS * math.e, NOW_MS - FLOW_MS))


BUSY = flowing(0.9)
"""A token of its streams would take longer than 0.78 of the target."""


def decided(*jobs: JobView, on: WorkerView = BUSY, turn: int = 0) -> Decision:
    return choose((jobs,), (on,), "predictive", turn=turn)


@pytest.mark.parametrize(
    ("waited", "again_ms"), [(600, LATE_PARK_MS), (10_000, LATE_PARK * 10_000), (3_000_000, LATEST_PARK_MS)]
)
def test_a_late_job_gets_out_of_the_way_for_a_part_of_what_it_has_waited(waited: float, again_ms: int) -> None:
    decision = decided(job("t:late", waited=waited))
    assert decision.park == (Park("t:late", HIGH, int(again_ms), ParkReason.LATE),)
    assert not decision.assignments
    assert not decision.refusals


def test_it_takes_what_the_others_leave() -> None:
    late = job("t:late", waited=600)
    for on in (worker(), flowing(0.1)):
        assert refs(decided(late, on=on)) == ["t:late"]


def test_a_window_full_of_late_jobs_is_cleared_in_one_round() -> None:
    """Or newcomers, who stand behind them by the lane's fair order, would not be seen before they are late too."""
    decision = decided(*lane(HIGH, HEADS, waited=5_000))
    assert len(decision.park) == HEADS


def test_each_eighth_start_may_be_theirs_once_they_have_waited_as_long_as_a_batch_may() -> None:
    waited = TARGETS.medium_ms + 1
    for turn in range(2 * LATE_TURN):
        decision = decided(job("t:late", waited=waited), turn=turn)
        assert bool(decision.assignments) == (turn % LATE_TURN == LATE_TURN - 1)
    assert decided(job("t:late", waited=waited - 2), turn=LATE_TURN - 1).park


@pytest.mark.parametrize("targets", [TARGETS, REFUSING])
def test_who_was_begun_is_neither_refused_nor_put_off(targets: Targets) -> None:
    begun = replace(job("t:begun", waited=30_000), begun=True)
    lanes = ((*lane(HIGH, 2), begun),)
    decision = choose(lanes, (worker(held=1),), "predictive", targets=targets)
    assert refs(decision)[0] == "t:begun"
    assert "t:begun" not in {one.ref for one in decision.refusals}
    assert "t:begun" not in {one.ref for one in decision.park}


def test_other_policies_know_no_late_jobs() -> None:
    decision = choose((lane(HIGH, 2, waited=60_000),), (BUSY,), "least-requests")
    assert len(decision.assignments) == 2
