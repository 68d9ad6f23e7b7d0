"""The default policy: what it predicts, whom it holds back, and whom it refuses."""

import math
from dataclasses import replace

import pytest

from protocol.states import Priority
from scheduler.policy.decision import Decision, Refusal
from scheduler.policy.order import LATE_TURN
from scheduler.policy.predictive import (
    AGING,
    KV_OFFLINE,
    OFFLINE,
    PENDING_FULL_TOKENS,
    REUSE,
    SETTLE,
    SLOW,
    URGENT_MS,
    Predictive,
)
from scheduler.policy.view import FLOW_MS, REFERENCE, Flow, Lately, WorkerView, lone_prefill_ms, work_ms
from tests.scheduler.policy.build import (
    HIGH,
    LOW,
    MEDIUM,
    NOW_MS,
    REFUSING,
    choose,
    fleet,
    job,
    lane,
    refs,
    spec,
    weighed,
    worker,
)

POLICY = Predictive()
BASE, TOKEN, KV = REFERENCE.base_ms, REFERENCE.token_ms, REFERENCE.decode_kv_ms
SHORT = spec(100)
STRAINING = 4_000
"""Prompt tokens whose step is too long for streams with 50 ms a token: 7 + 0.0195 · 4,000 = 85 ms."""
EACH_MS = work_ms(500, 500)


def strained() -> WorkerView:
    """A worker in whose queue a prompt waits that makes the step under way a long one, and the next one too."""
    return worker("strained", 2, pending_prefill_tokens=5_000, prefilling=1, step_tokens=2_500)


def decided(*jobs: str, waited: float = 0, of: WorkerView | None = None, now_ms: float = NOW_MS) -> Decision:
    lanes = (tuple(job(ref, waited=waited, of=SHORT) for ref in jobs),)
    return choose(lanes, (of or strained(),), "predictive", now_ms=now_ms, targets=REFUSING)


# What it predicts.


@pytest.mark.parametrize("tokens", [1, 100, 8_000])
def test_the_first_token_on_an_idle_worker_is_the_lone_prefill(tokens: int) -> None:
    alone = weighed(worker(step_tokens=8_192)).first_token_ms(job("t:1", of=spec(tokens)))
    assert alone == pytest.approx(lone_prefill_ms(tokens), rel=0.01)


def test_what_waits_and_who_streams_come_before_the_first_token() -> None:
    busy = worker("busy", 11, 64, pending_prefill_tokens=1_000, prefilling=1, kv_used_tokens=20_000, step_tokens=1_034)
    base = BASE + TOKEN * 10 + KV * 20_000
    # The step under way computes the prompt that was pending; 1,024 tokens find room in one beside ten streams.
    under_way = base + work_ms(1_000, 1_000)
    expected = under_way + base + work_ms(500, 500)
    predicted = weighed(busy)
    assert predicted.first_token_ms(job("t:1", of=spec(500))) == pytest.approx(expected)
    assert predicted.first_token_ms(job("t:2", of=spec(1_025))) == pytest.approx(
        under_way + 2 * base + work_ms(1_025, 1_025)
    )
    slow = weighed(replace(busy, speed=2.0))
    assert slow.first_token_ms(job("t:1", of=spec(500))) == pytest.approx(2 * expected, rel=0.02)
    assert POLICY.score(job("t:1", of=spec(500)), predicted) == pytest.approx((expected + REUSE * EACH_MS) * base)


def test_the_emptier_and_the_faster_worker_takes_the_job() -> None:
    equal = worker("a"), worker("b", pending_prefill_tokens=1_000, prefilling=1, held=1)
    assert choose((lane(HIGH, 1),), equal, "predictive").assignments[0].worker == "a"
    unequal = worker("slow", speed=2.0), worker("fast")
    assert {choose((lane(HIGH, 1),), unequal, "predictive", seed=n).assignments[0].worker for n in range(9)} == {"fast"}


# The order.


def test_urgent_ones_come_first_then_the_short_then_those_that_are_late() -> None:
    jobs = (
        job("late", waited=3_000, of=spec(10)),
        job("long", of=spec(5_000)),
        job("urgent-long", waited=400, of=spec(2_000)),
        job("short", of=spec(100)),
        job("urgent-short", waited=450, of=spec(200)),
    )
    arranged = POLICY.arrange(jobs, fleet(worker()))
    assert [found.ref for found in arranged] == ["urgent-short", "urgent-long", "short", "long", "late"]


def test_age_makes_a_long_prompt_as_good_as_a_short_one() -> None:
    gap_ms = TOKEN * 3_000
    young, old = job("young", of=spec(100)), job("old", waited=gap_ms / AGING + 1, of=spec(3_100))
    assert [found.ref for found in POLICY.arrange((young, old), fleet(worker()))] == ["old", "young"]


@pytest.mark.parametrize("priority", [MEDIUM, LOW])
def test_offline_lanes_keep_their_fair_order(priority: Priority) -> None:
    jobs = job("t:1", priority, of=spec(9_000)), job("t:2", priority, waited=5_000, of=spec(10))
    assert POLICY.arrange(jobs, fleet(worker())) == jobs


# Holding back.


def test_a_job_is_held_back_from_a_strained_worker_until_it_is_urgent() -> None:
    held_back = decided("t:1")
    assert not refs(held_back)
    urgent_at = NOW_MS + 500 - URGENT_MS - TOKEN * 100
    assert held_back.later_ms == min(urgent_at, NOW_MS + SETTLE * 500)
    assert held_back.wake_at_ms == held_back.later_ms
    # Reports go on: the worker is as strained then as it was.
    later = replace(strained(), reported_ms=urgent_at)
    assert not refs(decided("t:1", of=later, now_ms=urgent_at - 1))
    assert refs(decided("t:1", of=later, now_ms=urgent_at + 1)) == ["t:1"]


def test_an_idle_prefill_queue_lets_anybody_in() -> None:
    long = job("t:long", of=spec(60_000))
    assert refs(choose(((long,),), (worker(held=5),), "predictive")) == ["t:long"]
    waits = worker(held=5, pending_prefill_tokens=1, prefilling=1)
    assert not refs(choose(((long,),), (waits,), "predictive"))


def test_a_job_waits_for_the_best_worker_at_first_and_settles_later() -> None:
    # The best by far is held back from; the other is calm but much slower.
    views = strained(), worker("slow", 30, 64, speed=20.0)
    early = choose((lane(HIGH, 1, of=SHORT),), views, "predictive")
    assert not refs(early)
    later = choose((lane(HIGH, 1, waited=SETTLE * 500 + 1, of=SHORT),), views, "predictive")
    assert [assignment.worker for assignment in later.assignments] == ["slow"]


def test_a_row_of_jobs_that_are_held_back_ends_the_round() -> None:
    decision = decided(*(f"t:{n}" for n in range(200)))
    assert not decision.assignments
    assert not decision.refusals


@pytest.mark.parametrize(
    ("pending", "kv", "held", "full"),
    [
        (PENDING_FULL_TOKENS - 1, 0, 1, False),
        (PENDING_FULL_TOKENS, 0, 1, True),
        (0, 899, 1, False),
        (0, 900, 1, True),
        (0, 900, 0, False),
    ],
)
def test_full(pending: int, kv: int, held: int, full: bool) -> None:
    view = worker(held=held, pending_prefill_tokens=pending, kv_used_tokens=kv, kv_total_tokens=1_000)
    assert POLICY.full(weighed(view)) is full


# Offline beside online.


@pytest.mark.parametrize("priority", [MEDIUM, LOW])
def test_offline_jobs_leave_online_streams_their_step(priority: Priority) -> None:
    jobs = (lane(priority, 1, waited=1_000, of=spec(1_000)),)
    calm, crowded = worker(held=2, pending_prefill_tokens=200, prefilling=1), strained()
    decoding = worker(held=2, kv_used_tokens=int((OFFLINE * 50 - BASE) / KV))
    assert len(refs(choose(jobs, (calm,), "predictive"))) == 1
    assert not refs(choose(jobs, (crowded,), "predictive"))
    assert not refs(choose((lane(priority, 1, waited=1_000, of=spec(STRAINING)),), (calm,), "predictive"))
    assert not refs(choose(jobs, (decoding,), "predictive"))
    assert len(refs(choose(jobs, (crowded,), "predictive", lately=Lately(online=False)))) == 1
    # Alone before its prefill a long prompt makes one long step.
    for idle in worker(), worker(held=2):
        assert len(refs(choose((lane(priority, 1, waited=1_000, of=spec(STRAINING)),), (idle,), "predictive"))) == 1


def test_online_jobs_are_not_held_back_from_what_offline_work_fills() -> None:
    jobs = (lane(HIGH, 1, of=SHORT),)
    assert not refs(choose(jobs, (strained(),), "predictive"))
    assert refs(choose(jobs, (strained(),), "predictive", lately=Lately(offline=True)))
    # But where the pace is past that of calm streams.
    flooded = replace(strained(), flow=Flow(0.9 * FLOW_MS, NOW_MS))
    assert weighed(flooded).token_ms > weighed(flooded).calm_ms(50)
    assert not refs(choose(jobs, (flooded,), "predictive", lately=Lately(offline=True)))


def test_a_late_job_is_held_back_as_others_are() -> None:
    """It can't be saved, and a crowd of late jobs would keep all workers full of prompts."""
    jobs = (lane(HIGH, 1, waited=60_000, of=SHORT),)
    assert not refs(choose(jobs, (strained(),), "predictive"))


def test_offline_jobs_leave_room_in_the_kv_cache() -> None:
    jobs, room = (lane(LOW, 1, waited=1_000, of=spec(100, 100)),), int(KV_OFFLINE * 10_000)
    just, over = (worker(held=1, kv_total_tokens=10_000, kv_used_tokens=room - used) for used in (201, 200))
    assert len(refs(choose(jobs, (just,), "predictive"))) == 1
    assert not refs(choose(jobs, (over,), "predictive"))
    assert len(refs(choose(jobs, (over,), "predictive", lately=Lately(online=False)))) == 1


@pytest.mark.parametrize(("slots", "fills"), [(1, 1), (2, 1), (4, 3), (8, 7), (20, 18)])
def test_offline_jobs_leave_places_to_online_ones(slots: int, fills: int) -> None:
    """Rows may run for minutes: a newcomer can't wait for the end of one."""
    jobs, alone = (lane(LOW, 40, waited=1_000, of=spec(1)),), worker(slots=slots)
    assert len(refs(choose(jobs, (alone,), "predictive"))) == fills
    assert len(refs(choose(jobs, (alone,), "predictive", lately=Lately(online=False)))) == slots
    filled = worker(slots=slots, held=fills)
    assert len(refs(choose((lane(HIGH, 40, of=spec(1)), *jobs), (filled,), "predictive"))) == slots - fills
    overdue = (lane(LOW, 1, waited=600_001, of=SHORT),)
    turns = [bool(refs(choose(overdue, (filled,), "predictive", turn=turn))) for turn in range(LATE_TURN)]
    assert turns.count(True) == (slots > fills), "but for their eighth start"


def test_a_round_fills_the_step_with_offline_work_and_no_more() -> None:
    decision = choose((lane(LOW, 100, waited=1_000, of=spec(500)),), (worker(held=1, slots=64),), "predictive")
    given = weighed(worker(held=1, slots=64))
    for _ in decision.assignments:
        given.take(job("t:1", of=spec(500)))
    assert len(decision.assignments) > 1
    assert given.step_ms() <= OFFLINE * given.calm_ms(50) < given.step_ms(job("t:2", of=spec(500)))


# Admission.


def refused(of: WorkerView, waited: float = 0, **fields: bool) -> Decision:
    asked = SHORT.model_copy(update=fields)
    return choose(((job("t:1", waited=waited, of=asked),),), (of, of), "predictive", targets=REFUSING)


@pytest.mark.parametrize(("share", "expected"), [(SLOW, []), (SLOW + 0.01, ["t:1"])])
def test_refusal_while_all_streams_are_slow(share: float, expected: list[str]) -> None:
    assert [found.ref for found in refused(worker(held=1, slow_share=share)).refusals] == expected


def test_refusal_before_the_prompts_that_come_make_streams_slow() -> None:
    """A token takes base / (1 − share): 10 ms and three quarters of the time for prompts are 40 ms, under 0.9 · 50."""
    streaming = worker(held=10, slots=64, kv_used_tokens=int((10 - BASE - TOKEN * 10) / KV))
    at_ms = NOW_MS - FLOW_MS
    for share, expected in ((0.75, []), (0.8, ["t:1"])):
        flowing = replace(streaming, flow=Flow(share * FLOW_MS * math.e, at_ms))
        assert weighed(flowing).token_ms == pytest.approx(10 / (1 - share), rel=0.01)
        assert [found.ref for found in refused(flowing).refusals] == expected
    beside_offline = choose((lane(HIGH, 1),), (flowing,), "predictive", targets=REFUSING, lately=Lately(offline=True))
    assert not beside_offline.refusals


def test_one_worker_whose_streams_keep_their_pace_is_enough() -> None:
    views = worker("slow", 1, slow_share=1.0), worker("well", 1)
    decision = choose((lane(HIGH, 1),), views, "predictive", targets=REFUSING)
    assert len(decision.assignments) == 1
    assert not decision.refusals


def test_refusal_by_the_predicted_wait() -> None:
    behind = worker(held=1, pending_prefill_tokens=8_000, prefilling=1)
    soonest = weighed(behind).first_token_ms(job("t:1", of=SHORT))
    (found,) = refused(behind, waited=500 - soonest + 1).refusals
    assert found.wait_ms == pytest.approx(501)
    assert not refused(behind, waited=500 - soonest - 1).refusals


def test_a_long_prompt_may_take_three_times_its_prefill() -> None:
    asked = spec(30_000)
    target = 3 * lone_prefill_ms(30_000)
    assert target > 500
    in_time = job("t:1", waited=target / 2, of=asked)
    assert not choose(((in_time,),), (worker(),), "predictive", targets=REFUSING).refusals
    too_late = job("t:1", waited=target, of=asked)
    assert choose(((too_late,),), (worker(),), "predictive", targets=REFUSING).refusals


@pytest.mark.parametrize("waited", [0, 60_000])
def test_best_effort_is_never_refused(waited: float) -> None:
    decision = refused(worker(held=1, slow_share=1.0), waited, best_effort=True)
    assert not decision.refusals
    assert refs(decision) == ["t:1"]


@pytest.mark.parametrize("priority", [MEDIUM, LOW])
def test_a_batch_is_never_refused(priority: Priority) -> None:
    everybody = replace(REFUSING, refuse=frozenset(Priority))
    lanes = (lane(priority, 1, waited=10_000_000),)
    assert not choose(lanes, (worker(held=1, slow_share=1.0),), "predictive", targets=everybody).refusals


@pytest.mark.parametrize("priority", Priority)
def test_a_deadline_that_even_the_soonest_worker_misses_is_refused_where_targets_are_not(priority: Priority) -> None:
    in_time = replace(REFUSING, refuse=frozenset(), in_time=frozenset(Priority))
    behind = worker(held=1, pending_prefill_tokens=8_000, prefilling=1)
    late = job("t:1", priority, waited=60_000, of=SHORT)
    soonest = weighed(behind).first_token_ms(late)

    def refusals(deadline_ms: float, *, best_effort: bool = False) -> tuple[Refusal, ...]:
        asked = SHORT.model_copy(update={"best_effort": best_effort})
        lanes = ((replace(late, deadline_ms=deadline_ms, spec=asked),),)
        return choose(lanes, (behind, behind), "predictive", targets=in_time).refusals

    (found,) = refusals(NOW_MS + soonest - 1)
    assert found.wait_ms == pytest.approx(60_000 + soonest)
    assert not refusals(NOW_MS + soonest + 1)
    assert not refusals(0)
    assert not refusals(NOW_MS + soonest - 1, best_effort=True)


def test_nobody_is_refused_where_the_settings_say_so() -> None:
    assert not choose((lane(HIGH, 1, waited=60_000),), (worker(held=1, slow_share=1.0),), "predictive").refusals


@pytest.mark.parametrize("priority", [HIGH, LOW])
@pytest.mark.parametrize(("left_ms", "expected"), [(5, 1), (1_000, 0)])
def test_a_deadline_that_cannot_be_met_is_no_use_to_wait_for(priority: Priority, left_ms: int, expected: int) -> None:
    everybody = replace(REFUSING, refuse=frozenset(Priority))
    due = job("t:1", priority, of=SHORT, deadline_ms=int(NOW_MS) + left_ms)
    assert len(choose(((due,),), (worker(),), "predictive", targets=everybody).refusals) == expected
