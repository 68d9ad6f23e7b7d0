"""Recorded rounds come back as they were, and other policies can be asked about them."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages import LoadReport
from protocol.states import Priority
from protocol.wire import dumps, loads
from scheduler.policy.decide import decide
from scheduler.policy.decision import Assignment, Decision, Refusal
from scheduler.policy.order import Targets
from scheduler.policy.recording import VERSION, Decoder, Encoder, Head, Round, Unreadable, plain
from scheduler.policy.recording_rows import REPORT_FIELDS
from scheduler.policy.registry import POLICIES
from scheduler.policy.replay import compare
from scheduler.policy.view import Arrival, FleetView, Flow, Lately, Unseen
from scheduler.policy.window import Window
from tests.scheduler.policy.build import HIGH, NOW_MS, job, lane, spec, views, worker

RULES = Targets(refuse=frozenset({Priority.HIGH}), in_time=frozenset({Priority.LOW}), high_ms=700.0)
HEAD = Head("p.0", "predictive", RULES, Window(offline_ms=50.0))


def made(view: FleetView, policy: str = "predictive") -> Decision:
    return decide(view, NOW_MS, random.Random(1), POLICIES[policy], RULES, HEAD.window)


def kept(decision: Decision) -> Decision:
    """What a recording keeps of a decision."""
    return Decision(
        tuple(
            Assignment(a.ref, a.priority, a.worker, a.prompt_tokens, round(a.predicted_ms, 1), round(a.pending_ms, 1))
            for a in decision.assignments
        ),
        decision.park,
        tuple(replace(refusal, wait_ms=round(refusal.wait_ms, 1)) for refusal in decision.refusals),
    )


def through_json(line: object) -> dict[str, object]:
    value = loads(dumps(line))
    assert isinstance(value, dict)
    return value


def read(decoder: Decoder, line: object) -> Round:
    found = decoder.take(through_json(line))
    assert found
    return found


@given(st.lists(views(), min_size=1, max_size=4), st.sampled_from(sorted(POLICIES)))
@settings(deadline=None)
def test_rounds_come_back_and_decide_the_same(seen: list[FleetView], policy: str) -> None:
    encoder, decoder = Encoder(HEAD), Decoder()
    assert decoder.take(through_json(encoder.head())) is None
    for view in seen:
        decision = made(view)
        found = read(decoder, encoder.round(view, NOW_MS, decision))
        assert (found.head, found.now_ms, found.view, found.decision) == (HEAD, NOW_MS, plain(view), kept(decision))
        assert plain(found.view) == found.view
        assert made(found.view, policy) == made(plain(view), policy)


def test_what_does_not_change_is_told_once() -> None:
    encoder = Encoder(HEAD)
    jobs, workers = lane(HIGH, 50, of=spec(prefix=("a", "b"))), (worker("w1"), worker("w2", prefixes=("a",)))
    view = FleetView((jobs,), workers)
    first, again = (dumps(encoder.round(view, NOW_MS, Decision())) for _ in range(2))
    assert len(first) > 2_000
    assert len(again) < 300
    busier = FleetView((jobs,), (workers[0], replace(workers[1], held=3)), 7, lately=Lately(online=False))
    assert [row[0] for row in encoder.round(busier, NOW_MS, Decision())["c"]] == [1]


def test_all_that_decisions_read_comes_back() -> None:
    report = LoadReport(load_score=0.4, waiting=2, slow_share=0.25, step_tokens=2048, state_s={"active": 3.0}, taken=9)
    seen = replace(
        worker("w1", 3, models=("m", "n"), prefixes=("a",)),
        report=report,
        unseen=Unseen(2, 30, 40, (Arrival(NOW_MS - 5.25, 30, 0.625),)),
        flow=Flow(4.5, NOW_MS - 5.25),
        sent={"b": 1.0},
        speed=1.75,
        reported_ms=NOW_MS - 40,
    )
    jobs = (job("t:1", HIGH, 5, spec(900, 20, ("a", "b", "c"), "n"), deadline_ms=5, strikes=2),)
    encoder, decoder = Encoder(HEAD), Decoder()
    decoder.take(encoder.head())
    decision = Decision(refusals=(Refusal("t:1", HIGH, 812.04),))
    found = read(decoder, encoder.round(FleetView((jobs,), (seen,), 7, lately=Lately(online=False)), NOW_MS, decision))
    (known,), ((again,),) = found.view.workers, found.view.lanes
    assert (known.unseen, known.flow, known.speed, known.models, known.reported_ms) == (
        seen.unseen,
        seen.flow,
        seen.speed,
        seen.models,
        seen.reported_ms,
    )
    assert known.report == LoadReport(load_score=0.4, waiting=2, slow_share=0.25, step_tokens=2048)
    assert known.prefixes == {"a", "b"}
    assert (again.spec.prefix, again.deadline_ms, again.strikes) == (("a", "b", "c"), 5, 2)
    assert found.decision.refusals == (Refusal("t:1", HIGH, 812.0),)


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"s": "p.0"},
        {"s": "p.0", "t": 1, "n": 0, "o": 1, "l": [[5]]},
        {"s": "p.0", "recording": VERSION + 1},
        {"s": "p.0", "recording": VERSION, "targets": {"near_ms": 1}},
    ],
)
def test_lines_that_are_none_of_ours_are_refused(line: dict[str, object]) -> None:
    decoder = Decoder()
    decoder.take(Encoder(HEAD).head())
    with pytest.raises(Unreadable):
        decoder.take(line)


WORKER_ROW = [["w", 4, 1.0, []], [1, 0, 0, 0, 0, 0, [], [0.0, 0.0]], [NOW_MS, *[0] * len(REPORT_FIELDS)], []]
JOB_ROW = [0, "t:1", 0, "m", 10, 10, 0, [], NOW_MS, 0, 0, 0]
LINE = {"s": "p.0", "t": NOW_MS, "n": 0, "o": [1, 0], "l": [[0]], "j": [JOB_ROW], "w": ["w"], "c": [[0, *WORKER_ROW]]}


def changed(where: Sequence[int | str], value: object) -> Any:
    """The line with another value at one place."""
    line: Any = loads(dumps(LINE))
    place = line
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    return line


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (["t"], "x"),
        (["t"], 1e308),
        (["n"], "1.5"),
        (["o"], 1),
        (["j", 0, 1], ["t:1"]),
        (["j", 0, 4], -5),
        (["j", 0, 4], 2**60),
        (["j", 0, 8], None),
        (["c", 0, 1, 1], "many"),
        (["c", 0, 1, 2], 0),
        (["c", 0, 1, 2], -1),
        (["c", 0, 2, 6], [[NOW_MS, "x", 0]]),
        (["c", 0, 3, 5], None),
        (["a"], [[0, -1, 10, 1.0, 1.0]]),
        (["a"], [[0, 0, 10, None, 1.0]]),
        (["r"], [[0, "soon"]]),
    ],
)
def test_values_that_none_of_ours_has_written_are_refused(where: list[int | str], value: object) -> None:
    decoder = Decoder()
    decoder.take(Encoder(HEAD).head())
    assert decoder.take(changed(["n"], 1)) is not None
    with pytest.raises(Unreadable):
        decoder.take(changed(where, value))


def test_another_policy_is_counted_against_what_was_done() -> None:
    view = plain(FleetView((lane(HIGH, 4),), (worker("busy", 4, slots=4), worker("idle"))))
    recorded = Decision(
        (Assignment("high:0", HIGH, "idle", 100, 12.0), Assignment("high:1", HIGH, "busy", 100, 90.0)),
        refusals=(Refusal("high:2", HIGH, 900.0),),
    )
    rounds = [Round(replace(HEAD, targets=Targets()), NOW_MS + at, view, recorded) for at in (0, 500)]
    chosen = {"least-work": POLICIES["least-work"]}
    found = compare(rounds, chosen, lambda: random.Random(0))
    assert (found.recorded.name, found.rounds, found.to_ms - found.from_ms) == ("predictive", 2, 500)
    assert (found.recorded.assigned, found.recorded.same, found.recorded.differ, found.recorded.refused) == (4, 4, 0, 2)
    assert (found.recorded.predicted(0.5), found.recorded.predicted(1.0)) == (12.0, 90.0)
    (other,) = found.others
    assert (other.assigned, other.same, other.elsewhere, other.withheld, other.added) == (8, 2, 2, 0, 4)
    assert (other.differ, other.refused) == (6, 0)
    assert compare([], chosen, lambda: random.Random(0)).recorded.predicted(0.5) is None
