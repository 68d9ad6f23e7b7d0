"""Whole rounds, small ones."""

import pytest

from scheduler.policy.decision import Decision, ParkReason
from scheduler.policy.view import HEADS, JobView, WorkerView
from tests.scheduler.policy.build import HIGH, LOW, MEDIUM, choose, job, lane, refs, spec, worker

LONG = spec(5_000, 100)


def test_urgent_overtakes_a_queue() -> None:
    batch = lane(MEDIUM, 200, waited=30_000)
    assert refs(choose((lane(HIGH, 1), batch), (worker(held=7),))) == ["high:0"]


def test_an_old_batch_does_not_stand_before_a_chat() -> None:
    batch = lane(MEDIUM, 200, waited=3_600_000)
    assert refs(choose((lane(HIGH, 1), batch), (worker(held=7),))) == ["high:0"]


def test_jobs_bind_only_while_there_is_room() -> None:
    decision = choose((lane(HIGH, 20),), (worker("a", 5), worker("b", 6)))
    assert refs(decision) == [f"high:{n}" for n in range(5)]
    assert not decision.park


@pytest.mark.parametrize("workers", [(), (worker(held=8),), (worker(active=False, kv_total_tokens=1),)])
def test_nobody_has_room(workers: tuple[WorkerView, ...]) -> None:
    decision = choose((lane(HIGH, 5, of=LONG), lane(LOW, 5)), workers)
    assert decision == Decision()
    assert decision.wake_at_ms is None


def test_a_round_spreads_its_jobs() -> None:
    decision = choose((lane(HIGH, 6),), tuple(worker(name) for name in "abc"))
    assert sorted(a.worker for a in decision.assignments) == list("aabbcc")


def test_a_worker_that_becomes_full_in_the_round_gets_no_more() -> None:
    decision = choose((lane(HIGH, 6),), (worker(kv_total_tokens=1_000, held=1),))  # each job holds 200 of 900
    assert len(decision.assignments) == 5
    assert not decision.park


def test_a_job_too_large_for_all_is_parked_and_the_next_one_goes() -> None:
    lanes = ((job("t:long", of=LONG), job("t:short")),)
    decision = choose(lanes, (worker(kv_total_tokens=5_000), worker("b", 8, kv_total_tokens=5_099)))
    assert refs(decision) == ["t:short"]
    assert [(park.ref, park.reason) for park in decision.park] == [("t:long", ParkReason.TOO_LARGE)]


@pytest.mark.parametrize("size", [0, 5_100])
def test_a_job_that_fits_a_full_worker_waits_for_it(size: int) -> None:
    lanes = ((job("t:long", of=LONG), job("t:short")),)
    decision = choose(lanes, (worker(kv_total_tokens=5_000), worker("b", 8, kv_total_tokens=size)))
    assert refs(decision) == ["t:short"]
    assert not decision.park


def stuck(count: int) -> tuple[JobView, ...]:
    return lane(LOW, count, waited=10_000, of=LONG)


def test_a_window_that_only_a_full_worker_could_take_does_not_hide_the_rest() -> None:
    workers = worker("small", kv_total_tokens=5_000), worker("large", 8, kv_total_tokens=9_000)
    decision = choose((stuck(HEADS),), workers)
    assert [park.ref for park in decision.park] == [f"low:{n}" for n in range(HEADS // 2, HEADS)]
    assert {park.reason for park in decision.park} == {ParkReason.IN_THE_WAY}
    assert not choose((stuck(HEADS - 1),), workers).park  # nothing is hidden
    assert not choose((stuck(HEADS),), workers[1:]).park  # nothing could go


def test_jobs_whose_model_nobody_serves_wait_and_hide_nobody() -> None:
    unserved = lane(LOW, HEADS, waited=10_000, of=spec(model="adapter"))
    loading = worker("loading", active=False, models=("m", "adapter"))
    base = worker("base", models=("m",), kv_total_tokens=100)
    few = choose((unserved[:9],), (base, loading))
    assert not few.assignments
    assert not few.park
    many = choose((unserved,), (base, loading))
    assert [park.ref for park in many.park] == [f"low:{n}" for n in range(HEADS // 2, HEADS)]
    assert {park.reason for park in many.park} == {ParkReason.IN_THE_WAY}


def test_a_job_is_too_large_by_the_workers_of_its_model() -> None:
    lanes = ((job("t:1", of=spec(5_000, 100, model="adapter")),),)
    workers = worker("large", kv_total_tokens=9_000, models=("m",)), worker(kv_total_tokens=5_000, models=("adapter",))
    assert [park.reason for park in choose(lanes, workers).park] == [ParkReason.TOO_LARGE]


def test_a_window_that_nobody_can_take_is_parked() -> None:
    decision = choose((stuck(HEADS), lane(HIGH, 1)), (worker(kv_total_tokens=5_000),))
    assert refs(decision) == ["high:0"]
    assert len(decision.park) == HEADS
    assert {park.reason for park in decision.park} == {ParkReason.TOO_LARGE}
