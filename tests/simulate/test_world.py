"""Every request ends once, whatever happens to workers and clients; equal seeds yield equal runs."""

from dataclasses import astuple, replace

import pytest

from protocol.cost_model import PROFILES
from scheduler.policy.registry import POLICIES
from tests.simulate.build import PREDICTIVE, REFUSING, TARGETS, alone, ran, request, trace, trouble
from tokenfleet.simulate import world as world_module
from tokenfleet.simulate.engine import WorkerSpec
from tokenfleet.simulate.job import Outcome
from tokenfleet.simulate.scenario import Scenario
from tokenfleet.simulate.world import World

H100 = PROFILES["h100-8b"]


def ends(outcome: Outcome) -> int:
    return sum((outcome.ended_ms is not None, outcome.refused, outcome.cancelled))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_request_ends_once_and_nothing_is_left(policy: str) -> None:
    world = ran(replace(trouble(seed=1).scenario(POLICIES[policy], REFUSING), lease_ms=1_000.0))
    outcomes = list(world.outcomes.values())
    assert [ends(one) for one in outcomes] == [1] * len(outcomes)
    assert any(one.cancelled for one in outcomes)
    assert any(one.tries for one in outcomes)
    whole = [one for one in outcomes if one.ended_ms is not None]
    assert all(one.tokens == one.request.output_tokens for one in whole)
    assert len(world.ledger) == 0
    # The dead one keeps what it had.
    assert not [ref for engine in world.engines if engine.died_ms is None for ref in engine.jobs]


@pytest.mark.parametrize("policy", ["predictive", "power-of-two"])
def test_equal_seeds_yield_equal_outcomes(policy: str) -> None:
    first, second = (ran(trouble(seed=3).scenario(POLICIES[policy], REFUSING)) for _ in range(2))
    assert [astuple(one) for one in first.outcomes.values()] == [astuple(one) for one in second.outcomes.values()]


def test_other_seeds_yield_other_outcomes() -> None:
    first, second = (ran(trouble(seed=seed).scenario(PREDICTIVE, REFUSING)) for seed in (3, 4))
    assert first.now_ms != second.now_ms


def test_a_lone_request_takes_what_the_cost_model_says() -> None:
    world = alone([request(0, prompt_tokens=1_000, output_tokens=2)], WorkerSpec("w"))
    outcome = world.outcomes["t:0"]
    first_ms = H100.step_ms(1_000, 0, 1_000 * 500)
    assert outcome.ttft_ms == pytest.approx(first_ms)
    assert outcome.token_ms == pytest.approx(H100.step_ms(1, 1_000, 0))


def test_a_slow_worker_takes_its_time() -> None:
    requests = [request(0, prompt_tokens=1_000, output_tokens=2)]
    fast, slow = (alone(requests, WorkerSpec("w", slowness=slowness)) for slowness in (1.0, 2.0))
    assert slow.now_ms == pytest.approx(2 * fast.now_ms)


def test_a_slow_worker_gets_less_once_its_speed_is_known() -> None:
    specs = [WorkerSpec("fast", block_tokens=256), WorkerSpec("slow", slowness=3.0, block_tokens=256)]
    world = ran(Scenario(trace(1_500).requests(4.0), specs, PREDICTIVE, TARGETS))
    fast, slow = (sum(one.worker == name for one in world.outcomes.values()) for name in ("fast", "slow"))
    assert fast > 1.5 * slow
    assert world.speeds.of("slow") > 2 > world.speeds.of("fast")


def test_what_a_dead_worker_had_runs_elsewhere_once_its_lease_is_over() -> None:
    specs = [WorkerSpec("a", dies_ms=100.0), WorkerSpec("b")]
    requests = [request(number, number * 10.0, output_tokens=200) for number in range(10)]
    world = ran(Scenario(requests, specs, POLICIES["round-robin"], TARGETS, lease_ms=500.0))
    again = [one for one in world.outcomes.values() if one.tries]
    assert len(again) == 5
    for one in again:
        assert one.worker == "b"
        assert one.started_ms is not None
        assert one.started_ms >= 600.0
        assert one.tokens == 200


def test_what_a_dead_worker_had_comes_back_to_its_place() -> None:
    specs = [WorkerSpec("a", sequences=1, dies_ms=5.0), WorkerSpec("b", sequences=1, joins_ms=20_000.0)]
    requests = [request(number, float(number), output_tokens=10) for number in range(4)]
    world = ran(Scenario(requests, specs, POLICIES["least-requests"], TARGETS))
    started = sorted(world.outcomes.values(), key=lambda one: one.started_ms or 0.0)
    assert [one.request.ref for one in started] == [one.ref for one in requests]
    assert started[0].tries == 1


def test_an_engine_without_room_gives_up_the_youngest_and_ends_all() -> None:
    spec = WorkerSpec("w", kv_tokens=2_048)
    # Each says that it needs 356 tokens at its end and takes 1,100: only one of them can.
    requests = [request(number, prompt_tokens=100, output_tokens=1_000) for number in range(4)]
    world = alone(requests, spec)
    assert all(one.tokens == 1_000 for one in world.outcomes.values())
    slowest = max(one.token_ms for one in world.outcomes.values())
    assert slowest > 1.5 * min(one.token_ms for one in world.outcomes.values())


def test_a_late_joiner_takes_work() -> None:
    specs = [WorkerSpec("a"), WorkerSpec("b", joins_ms=500.0)]
    requests = [request(number, number * 20.0, prompt_tokens=2_000) for number in range(100)]
    world = ran(Scenario(requests, specs, PREDICTIVE, TARGETS))
    starts = [one.started_ms for one in world.outcomes.values() if one.worker == "b"]
    assert starts
    assert min(start for start in starts if start is not None) >= 500.0


def test_it_stops_at_its_time() -> None:
    world = ran(Scenario(trace(100).requests(), [WorkerSpec("w", block_tokens=256)], PREDICTIVE, until_ms=1_000.0))
    assert world.now_ms >= 1_000.0
    assert any(not ends(one) for one in world.outcomes.values())


def test_it_refuses_what_could_never_end() -> None:
    with pytest.raises(ValueError, match="KV cache"):
        World(Scenario([request(0, prompt_tokens=5_000)], [WorkerSpec("w", kv_tokens=4_096)], PREDICTIVE))
    with pytest.raises(ValueError, match="same name"):
        World(Scenario([], [WorkerSpec("w"), WorkerSpec("w")], PREDICTIVE))


def test_it_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "EVENTS_TOLD", 100)
    told: list[float] = []
    World(Scenario(trace(300).requests(8.0), [WorkerSpec("w", block_tokens=256)], PREDICTIVE)).run(told.append)
    assert told == sorted(told)
    assert 0 < told[-1] <= 1


def test_old_reports_are_outweighed_by_own_counters() -> None:
    specs = [WorkerSpec(f"w{number}", block_tokens=256) for number in range(4)]
    fresh = Scenario(trace(800).requests(6.0), specs, PREDICTIVE, TARGETS)
    good = [
        sum(one.good(TARGETS) for one in ran(scenario).outcomes.values())
        for scenario in (fresh, replace(fresh, report_ms=1_000.0), replace(fresh, late_ms=1_000.0))
    ]
    assert min(good) >= 0.97 * good[0]
