"""Who may take a job at all."""

import pytest

from scheduler.policy.filters import accepts, fits
from scheduler.policy.view import WorkerView
from tests.scheduler.policy.build import HIGH, choose, job, lane, refs, spec, worker


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (worker(), True),
        (worker(held=7), True),
        (worker(held=8), False),
        (worker(slots=0), False),
        (worker(active=False), False),
        (worker(held=1, solo=True), False),
    ],
)
def test_room(view: WorkerView, expected: bool) -> None:
    assert accepts(view) is expected


@pytest.mark.parametrize(
    ("held", "running", "waiting", "expected"),
    [
        (20, 4, 16, True),  # free places: they enter with the next step
        (24, 16, 8, False),
        (18, 16, 2, True),
        (18, 16, 8, True),  # six have ended since the report
    ],
)
def test_the_engines_own_queue_stays_shallow(held: int, running: int, waiting: int, expected: bool) -> None:
    assert accepts(worker(held=held, slots=32, capacity=16, running=running, waiting=waiting)) is expected


@pytest.mark.parametrize(("total", "expected"), [(0, True), (199, False), (200, True)])
def test_prompt_and_output_must_fit_the_cache(total: int, expected: bool) -> None:
    assert fits(job("t:1", of=spec(100, 100)), total) is expected


def test_an_adapter_goes_only_where_it_is_loaded() -> None:
    base, both = worker("base", models=("m",)), worker("both", 7, models=("m", "adapter"))
    jobs = (job("t:1", of=spec(model="adapter")), job("t:2", of=spec(model="adapter")), job("t:3"))
    decision = choose((jobs,), (base, both))
    assert {(a.ref, a.worker) for a in decision.assignments} == {("t:1", "both"), ("t:3", "base")}
    assert refs(choose(((job("t:1", of=spec(model="adapter")),),), (worker(),))) == ["t:1"]  # one that does not tell


def test_a_struck_job_drains_only_a_worker_that_serves_its_model() -> None:
    struck = job("t:struck", waited=1_000, strikes=2, of=spec(model="adapter"))
    workers = worker("base", 1, models=("m",)), worker("both", 5, models=("m", "adapter"))
    decision = choose(((struck, *lane(HIGH, 20)),), workers)
    assert {a.worker for a in decision.assignments} == {"base"}


def test_a_struck_job_goes_to_an_empty_worker_which_takes_nobody_else() -> None:
    jobs = (job("t:struck", strikes=2), *lane(HIGH, 9))
    decision = choose((jobs,), (worker("busy", 1), worker("empty", pending_prefill_tokens=99_999)))
    assert [a.ref for a in decision.assignments if a.worker == "empty"] == ["t:struck"]
    assert len(decision.assignments) == 8


def test_a_struck_job_waits_when_no_worker_is_empty() -> None:
    decision = choose(((job("t:struck", strikes=2), job("t:next")),), (worker(held=1),))
    assert refs(decision) == ["t:next"]
    assert not decision.park


def test_an_overdue_struck_job_drains_the_emptiest_worker() -> None:
    struck, others = job("t:struck", waited=1_000, strikes=2), lane(HIGH, 20)
    busy = choose(((struck, *others),), (worker("a", 3), worker("b", 2), worker("gone", 0, active=False)))
    assert {a.worker for a in busy.assignments} == {"a"}
    emptied = choose(((struck, *others),), (worker("a", 3), worker("b", 0)))
    assert [a.ref for a in emptied.assignments if a.worker == "b"] == ["t:struck"]
