"""Online jobs that can't meet their targets where nobody is refused: what is left is theirs, and they end some time."""

import math
from dataclasses import replace

import pytest

from scheduler.policy.decision import LATE_KEPT, LATE_PARK, LATE_PARK_MS, LATEST_PARK_MS, Decision, Park, ParkReason
from scheduler.policy.order import LATE_TURN, Targets
from scheduler.policy.predictive import LATE_ONLINE
from scheduler.policy.view import FLOW_MS, HEADS, Flow, JobView, WorkerView
from tests.scheduler.policy.build import HIGH, MEDIUM, NOW_MS, REFUSING, TARGETS, choose, job, lane, refs, worker


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
def test_late_jobs_past_those_that_are_kept_are_put_off_for_a_part_of_what_they_have_waited(
    waited: float, again_ms: int
) -> None:
    jobs = lane(HIGH, LATE_KEPT + 1, waited=waited)
    decision = decided(*jobs)
    assert decision.park == (Park(jobs[-1].ref, HIGH, int(again_ms), ParkReason.LATE),)
    assert not decision.assignments
    assert not decision.refusals


def test_it_takes_what_the_others_leave() -> None:
    late = job("t:late", waited=600)
    for on in (worker(), flowing(0.1)):
        assert refs(decided(late, on=on)) == ["t:late"]


def test_a_window_full_of_late_jobs_is_cleared_in_one_round() -> None:
    """Or newcomers, who stand behind them by the lane's fair order, would not be seen before they are late too."""
    decision = decided(*lane(HIGH, HEADS, waited=5_000))
    assert len(decision.park) == HEADS - LATE_KEPT
    assert decision.late == LATE_KEPT


def test_those_that_stay_in_sight_take_room_as_soon_as_it_comes() -> None:
    """A burst must not wait out its time in `due` before idle workers."""
    decision = decided(*lane(HIGH, LATE_KEPT, waited=5_000))
    assert not decision.park
    assert decided(*lane(HIGH, LATE_KEPT, waited=5_000), on=worker()).assignments


def test_those_that_were_put_off_are_wanted_back_when_nobody_in_sight_waits_for_the_room() -> None:
    assert choose((), (worker(),), "predictive").spare
    assert decided(job("t:new"), on=worker()).spare
    assert not decided(job("t:late", waited=5_000)).spare, "it waits itself"
    assert not choose((), (worker(held=8),), "predictive").spare, "no room"
    assert not decided(*lane(HIGH, HEADS), on=worker()).spare, "there may be more in the lane itself"


def test_each_eighth_start_may_be_theirs_once_they_have_waited_as_long_as_a_batch_may() -> None:
    waited = TARGETS.medium_ms + 1
    for turn in range(2 * LATE_TURN):
        decision = decided(job("t:late", waited=waited), turn=turn)
        assert bool(decision.assignments) == (turn % LATE_TURN == LATE_ONLINE)
    assert not decided(job("t:late", waited=waited - 2), turn=LATE_ONLINE).assignments


def test_an_overdue_batch_does_not_take_their_turns() -> None:
    """It has each eighth start too: were that the same one, late chats would not run before the batch is done."""
    started = []
    for turn in range(2 * LATE_TURN):
        late, batch = job("t:late", waited=10 * TARGETS.medium_ms), lane(MEDIUM, 5, waited=20 * TARGETS.medium_ms)
        started += refs(choose(((late,), batch), (BUSY,), "predictive", turn=turn))
    assert started.count("t:late") == 2


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
