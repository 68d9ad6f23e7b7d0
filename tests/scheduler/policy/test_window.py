"""What the batch window holds, and why it closes."""

import pytest

from protocol.states import Priority
from scheduler.policy.view import JobView, WorkerView
from scheduler.policy.window import Reason
from tests.scheduler.policy.build import HIGH, LOW, MEDIUM, NOW_MS, choose, job, lane, refs, spec, worker

SHARED = spec(prefix=("a",))
BUSY = worker(held=6)


def verdict(jobs: tuple[JobView, ...], *workers: WorkerView) -> tuple[Reason | None, float | None]:
    decision = choose((jobs,), workers or (BUSY,))
    priority = jobs[0].priority
    assert (priority in decision.held) != (priority in decision.closed)
    assert bool(decision.assignments) == (priority in decision.closed)
    wake = decision.wake_at_ms
    return decision.closed.get(priority), None if wake is None else wake - NOW_MS


@pytest.mark.parametrize("priority", [MEDIUM, LOW])
@pytest.mark.parametrize(
    ("waited", "expected"), [(0, (None, 20)), (5, (None, 15)), (20, (Reason.QUIET, None)), (250, (Reason.AGE, None))]
)
def test_one_job_that_may_get_company_waits_until_it_is_quiet(
    priority: Priority, waited: float, expected: tuple[Reason | None, float | None]
) -> None:
    assert verdict((job("t:1", priority, waited, SHARED),)) == expected


def test_a_growing_lane_is_held_until_its_oldest_is_of_age() -> None:
    room = worker(held=12, slots=16)
    growing = job("t:1", MEDIUM, 190, SHARED), job("t:2", MEDIUM, 5, SHARED)
    assert verdict(growing, room) == (None, 10)
    assert verdict((job("t:1", MEDIUM, 200, SHARED), growing[1]), room) == (Reason.AGE, None)


def test_as_many_as_there_is_room_for_go() -> None:
    assert verdict(lane(MEDIUM, 2, 0, SHARED)) == (Reason.FULL, None)


def test_jobs_that_share_nothing_go() -> None:
    assert verdict((job("t:1", MEDIUM),)) == (Reason.QUIET, None)


def test_nothing_is_held_while_a_worker_runs_less_than_half() -> None:
    assert verdict((job("t:1", LOW, of=SHARED),), BUSY, worker("calm", 3)) == (Reason.ROOM, None)


def test_online_jobs_are_never_held() -> None:
    assert verdict((job("t:1", HIGH, of=SHARED),)) == (Reason.ROOM, None)


def test_a_held_lane_does_not_hold_others() -> None:
    decision = choose((lane(HIGH, 1, of=SHARED), lane(LOW, 1, of=SHARED)), (BUSY,))
    assert refs(decision) == ["high:0"]
    assert decision.held == {LOW: NOW_MS + 20}
