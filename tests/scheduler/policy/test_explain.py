"""What is said of a waiting job is what a round decides about it."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.states import Priority
from scheduler.policy.decide import decide
from scheduler.policy.decision import ParkReason
from scheduler.policy.explain import Ahead, Explanation, Obstacle, Question, Verdict, ahead_of, explain
from scheduler.policy.order import Targets
from scheduler.policy.registry import POLICIES
from scheduler.policy.view import FleetView, JobView, WorkerView
from scheduler.policy.window import Window
from tests.scheduler.policy.build import HIGH, LOW, MEDIUM, NOW_MS, job, lane, spec, views, worker

ME = job("me")


def asked(view: FleetView, about: JobView = ME, ahead: Ahead | None = None, policy: str = "predictive") -> Explanation:
    rules = (POLICIES[policy], Targets(), Window())
    return explain(Question(view, about, ahead or Ahead()), NOW_MS, random.Random(0), *rules)


def alone(*workers: WorkerView, about: JobView = ME) -> FleetView:
    return FleetView(((about,),), workers)


@given(views(), st.sampled_from(sorted(POLICIES)))
@settings(deadline=None)
def test_it_says_what_the_round_does(view: FleetView, policy: str) -> None:
    rules = (POLICIES[policy], Targets(), Window())
    decision = decide(view, NOW_MS, random.Random(0), *rules)
    given_to = {item.ref: item.worker for item in decision.assignments}
    parked = {item.ref: item.reason for item in decision.park}
    for about in (one for jobs in view.lanes for one in jobs):
        found = asked(view, about, policy=policy)
        assert (found.verdict is Verdict.STARTS) == (about.ref in given_to)
        assert found.worker == given_to.get(about.ref, "")
        late = parked.get(about.ref) is ParkReason.LATE
        assert (found.verdict is Verdict.PUT_OFF) == late
        assert (found.verdict is Verdict.PARKED) == (about.ref in parked and not late)
        assert (found.start_in_ms is None) == (found.first_token_in_ms is None)
        assert len(found.candidates) == len(view.workers)
        if found.verdict is Verdict.STARTS:
            assert found.start_in_ms == 0


@pytest.mark.parametrize(
    ("other", "obstacle"),
    [
        (worker("w", active=False), Obstacle.AWAY),
        (worker("w", 1, solo=True), Obstacle.SOLO),
        (worker("w", models=("other",)), Obstacle.MODEL),
        (worker("w", kv_total_tokens=150), Obstacle.TOO_LARGE),
        (worker("w", 8), Obstacle.SLOTS),
        (worker("w", 7, running=4, capacity=4, waiting=3), Obstacle.QUEUE),
        (worker("w", 1, pending_prefill_tokens=9_000, prefilling=1), Obstacle.FULL),
        (worker("w", 2, pending_prefill_tokens=6_000, prefilling=1, step_tokens=3_000), Obstacle.STEP),
        (worker("w"), None),
    ],
)
def test_each_obstacle_has_its_name(other: WorkerView, obstacle: Obstacle | None) -> None:
    (candidate,) = asked(alone(replace(other, reported_ms=NOW_MS))).candidates
    assert candidate.obstacle is obstacle


def test_a_job_that_must_run_alone_waits_for_an_empty_worker() -> None:
    suspect = job("me", strikes=2)
    found = asked(alone(worker("w", 1), about=suspect), suspect)
    assert [one.obstacle for one in found.candidates] == [Obstacle.ALONE]
    assert found.verdict is Verdict.NO_ROOM


def test_verdicts() -> None:
    assert asked(alone(worker("w"))).verdict is Verdict.STARTS
    assert asked(alone(worker("w", models=("n",)))).verdict is Verdict.NO_WORKER
    assert asked(alone()).start_in_ms is None
    assert asked(alone(worker("w", 8))).verdict is Verdict.NO_ROOM
    strained = replace(
        worker("w", 2, pending_prefill_tokens=6_000, prefilling=1, step_tokens=3_000), reported_ms=NOW_MS
    )
    held = asked(alone(strained))
    assert (held.verdict, held.until_ms is not None) == (Verdict.HELD_BACK, True)
    behind = asked(FleetView((), (worker("w"),)), ahead=Ahead(300, 60_000))
    assert behind.verdict is Verdict.BEHIND
    refusing = Targets(refuse=frozenset({HIGH}))
    late = job("me", waited=5_000)
    question = Question(alone(worker("w"), about=late), late, Ahead())
    refused = explain(question, NOW_MS, random.Random(0), POLICIES["predictive"], refusing, Window())
    assert (refused.verdict, refused.start_in_ms) == (Verdict.REFUSED, None)


def test_an_offline_job_that_gathers_says_until_when() -> None:
    batch = lane(LOW, 2, of=spec(prefix=("a",)))
    found = asked(FleetView((batch,), (worker("w", 4),)), batch[0])
    assert (found.verdict, found.until_ms) == (Verdict.GATHERS, NOW_MS + 20)


def test_the_best_stands_first_and_those_that_never_could_last() -> None:
    view = alone(worker("never", models=("n",)), worker("full", 8), worker("busy", 3), worker("idle"))
    assert [one.id for one in asked(view).candidates] == ["idle", "busy", "full", "never"]


def test_more_work_ahead_is_a_later_start() -> None:
    workers = (worker("a", 8), worker("b", 8))
    starts = [asked(alone(*workers), ahead=Ahead(jobs, 200 * jobs)).start_in_ms for jobs in (0, 10, 1_000)]
    assert all(start is not None for start in starts)
    assert 0 < (starts[0] or 0) < (starts[1] or 0) < (starts[2] or 0)


def test_a_start_is_predicted_by_how_fast_jobs_go_where_that_is_known() -> None:
    question = Question(alone(worker("a", 8)), ME, Ahead(9, 2_000), starts_per_s=20)
    found = explain(question, NOW_MS, random.Random(0), POLICIES["predictive"], Targets(), Window())
    assert found.start_in_ms == 500


def test_what_stands_ahead_counts_more_urgent_lanes_and_those_out_of_sight() -> None:
    lanes = (lane(HIGH, 2), lane(MEDIUM, 3, of=spec(10, 10)), lane(LOW, 4))
    view = FleetView(lanes, ())
    assert ahead_of(lanes[1][1], 1, view, [2, 3, 4]) == Ahead(3, 420)
    assert ahead_of(lanes[0][0], 0, view, [2, 3, 4]) == Ahead(0, 0)
    assert ahead_of(job("far", Priority.LOW), 1_000, view, [20, 3, 2_000]) == Ahead(1_023, 20 * 200 + 60 + 200_000)
