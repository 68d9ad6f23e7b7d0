"""What is learned of each worker's engine."""

import random

import pytest

from protocol.messages import LoadReport
from scheduler.policy.speeds import AWAITED, FASTEST, MOST_OTHERS, SLOWEST, SURE, Speeds


def learn(speeds: Speeds, slowness: float, *, waits: float = 0.0, count: int = 400, seed: int = 0) -> float:
    """First tokens of an engine that takes `slowness` times as long, some of which waited for others besides."""
    rng = random.Random(seed)
    for attempt in range(1, count + 1):
        reference_ms = rng.uniform(20, 200)
        speeds.assigned("w", attempt, reference_ms * speeds.of("w"), 0.0)
        took_ms = reference_ms * slowness * rng.uniform(0.9, 1.1)
        took_ms *= rng.uniform(1, 5) if rng.random() < waits else 1
        speeds.reported("w", LoadReport(firsts=((attempt, round(took_ms)),)))
    return speeds.of("w")


@pytest.mark.parametrize("slowness", [2.0, 3.0, 0.5])
def test_another_speed_is_learned(slowness: float) -> None:
    assert learn(Speeds(), slowness) == pytest.approx(slowness, rel=0.15)


@pytest.mark.parametrize("waits", [0.0, 0.5])
def test_equal_engines_stay_equal_however_much_traffic_adds(waits: float) -> None:
    assert [learn(Speeds(), 1.0, waits=waits, seed=seed) for seed in range(10)] == [1.0] * 10


def test_a_slow_engine_is_found_in_traffic() -> None:
    assert learn(Speeds(), 2.0, waits=0.5, count=1_000) == pytest.approx(2, rel=0.25)


@pytest.mark.parametrize(("slowness", "bound"), [(0.0, FASTEST), (1e6, SLOWEST)])
def test_no_engine_is_taken_to_be_beyond_all_bounds(slowness: float, bound: float) -> None:
    speeds = Speeds()
    assert learn(speeds, slowness, count=3_000) == bound
    assert learn(speeds, 1.0, count=3_000) == 1.0


def test_a_speed_that_changes_is_learned_anew() -> None:
    speeds = Speeds()
    assert learn(speeds, 2.0) > SURE
    assert learn(speeds, 1.0) == 1.0


def test_what_waited_for_others_tells_nothing() -> None:
    speeds = Speeds()
    for attempt in range(1, 200):
        speeds.assigned("w", attempt, 100.0, 100 * MOST_OTHERS + 1)
        speeds.reported("w", LoadReport(firsts=((attempt, 900),)))
    assert speeds.of("w") == 1.0


def test_a_first_token_of_another_worker_or_of_none_tells_nothing() -> None:
    speeds = Speeds()
    for attempt in range(1, 200):
        speeds.assigned("w", attempt, 100.0, 0.0)
        speeds.reported("other", LoadReport(firsts=((attempt, 900), (attempt + 10_000, 900))))
    assert speeds.of("other") == speeds.of("w") == 1.0


def test_what_never_comes_is_forgotten_and_so_are_workers_that_left() -> None:
    speeds = Speeds()
    for attempt in range(2 * AWAITED):
        speeds.assigned("w", attempt, 100.0, 0.0)
    assert len(speeds._awaited) == AWAITED
    learn(speeds, 3.0)
    speeds.keep(())
    assert speeds.of("w") == 1.0
