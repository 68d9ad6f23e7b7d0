"""Who comes first."""

import pytest

from protocol.states import Priority
from scheduler.policy.order import LATE_TURN, Order, Targets, slack_ms
from scheduler.policy.view import JobView
from tests.scheduler.policy.build import HIGH, LOW, MEDIUM, NOW_MS, job, spec

MINUTE_MS = 60_000


def ordered(*lanes: tuple[JobView, ...], turn: int = 0) -> list[str]:
    order, found = Order(lanes, NOW_MS, Targets()), []
    while following := order.next(turn):
        found.append(following.ref)
    return found


@pytest.mark.parametrize(
    ("priority", "waited", "slack"), [(HIGH, 100, 400), (HIGH, 700, -200), (MEDIUM, 100, 59_900), (LOW, 100, 599_900)]
)
def test_slack_is_what_is_left_of_the_target(priority: Priority, waited: float, slack: float) -> None:
    assert slack_ms(job("t:1", priority, waited), NOW_MS, Targets()) == slack


def test_lanes_with_equal_ages_come_by_priority() -> None:
    assert ordered((job("low", LOW),), (job("high"),), (job("medium", MEDIUM),)) == ["high", "medium", "low"]


def test_age_lifts_a_low_job_over_a_medium_newcomer() -> None:
    assert ordered((job("m", MEDIUM),), (job("l", LOW, 9.5 * MINUTE_MS),)) == ["l", "m"]


@pytest.mark.parametrize("priority", [MEDIUM, LOW])
def test_no_age_lifts_a_job_over_an_online_newcomer(priority: Priority) -> None:
    assert ordered((job("high"),), (job("old", priority, 1_000 * MINUTE_MS),)) == ["high", "old"]


def test_each_eighth_start_belongs_to_an_overdue_lane_in_turns() -> None:
    lanes = (job("high"),), (job("m", MEDIUM, 90 * MINUTE_MS),), (job("l", LOW, 25 * MINUTE_MS),)
    firsts = [ordered(*lanes, turn=turn)[0] for turn in range(2 * LATE_TURN)]
    assert firsts == ["high"] * 7 + ["m"] + ["high"] * 7 + ["l"]
    assert ordered((job("high"),), (job("l", LOW),), turn=LATE_TURN - 1)[0] == "high"  # nobody is overdue


def test_a_lane_keeps_its_order_whatever_its_ages() -> None:
    newcomer_before_a_flood = (job("b:1", MEDIUM, 5), job("a:1", MEDIUM, 50), job("a:2", MEDIUM, 40))
    assert ordered(newcomer_before_a_flood) == ["b:1", "a:1", "a:2"]


def due_in(left_ms: float, run_ms: int = 0) -> int:
    """The deadline of a job that runs for `run_ms` and must start in `left_ms`."""
    return int(NOW_MS + left_ms + run_ms)


def instant(ref: str, priority: Priority, left_ms: float) -> JobView:
    return job(ref, priority, of=spec(0, 0), deadline_ms=due_in(left_ms))


def test_a_job_that_must_start_now_overtakes_its_lane_and_newcomers() -> None:
    urgent = job("urgent", LOW, of=spec(10_000, 50), deadline_ms=due_in(300, 2_000))
    assert ordered((job("high"),), (job("l", LOW), urgent)) == ["urgent", "high", "l"]


@pytest.mark.parametrize("left_ms", [-1, 2_001, MINUTE_MS])
def test_deadlines_that_are_far_or_lost_change_nothing(left_ms: float) -> None:
    assert ordered((job("high"),), (job("l", LOW), instant("other", LOW, left_ms))) == ["high", "l", "other"]


def test_the_nearest_deadline_comes_first() -> None:
    assert ordered(tuple(instant(f"{left}", MEDIUM, left) for left in (900, 100, 400))) == ["100", "400", "900"]


def test_each_job_comes_once() -> None:
    lanes = [tuple(instant(f"{p}{n}", p, n * 300) for n in range(9)) for p in (HIGH, LOW)]
    assert sorted(ordered(*lanes)) == sorted(found.ref for lane in lanes for found in lane)
