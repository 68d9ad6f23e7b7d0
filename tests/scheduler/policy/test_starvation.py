"""Many rounds on a clock of their own: nobody waits for ever, and nobody who is urgent waits for the rest."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from protocol.messages import LoadReport
from protocol.states import Priority
from scheduler.policy.decide import decide
from scheduler.policy.order import LATE_TURN, Targets
from scheduler.policy.registry import POLICIES
from scheduler.policy.view import HEADS, FleetView, JobView, WorkerView
from scheduler.policy.window import Window
from tests.scheduler.policy.build import HIGH, LOW, MEDIUM, NOW_MS, choose, job, lane, spec, worker

ROUND_MS = 50.0
"""One job ends in each round on the one worker."""


class Fleet:
    """One worker that always has one free slot, and lanes that a test fills."""

    def __init__(self, view: WorkerView, policy: str = "least-work") -> None:
        self.now_ms = NOW_MS
        self.worker, self.policy = view, POLICIES[policy]
        self.lanes: dict[Priority, list[JobView]] = {priority: [] for priority in Priority}
        self.waits: dict[str, float] = {}
        self._rng = random.Random(7)

    def submit(self, ref: str, priority: Priority, strikes: int = 0) -> None:
        self.lanes[priority].append(replace(job(ref, priority, strikes=strikes), submitted_ms=self.now_ms))

    def round(self) -> None:
        lanes = tuple(tuple(lane[:HEADS]) for lane in self.lanes.values() if lane)
        # Its report is new each time: what strains it goes on.
        view = FleetView(lanes, (replace(self.worker, reported_ms=self.now_ms),), len(self.waits))
        for chosen in decide(view, self.now_ms, self._rng, self.policy, Targets(), Window()).assignments:
            lane = self.lanes[chosen.priority]
            started = next(waiting for waiting in lane if waiting.ref == chosen.ref)
            lane.remove(started)
            self.waits[chosen.ref] = self.now_ms - started.submitted_ms
        self.now_ms += ROUND_MS


@pytest.mark.parametrize("policy", ["least-work", "kv-cost", "predictive"])
@pytest.mark.parametrize(("priority", "target_ms"), [(MEDIUM, 60_000), (LOW, 600_000)])
def test_endless_online_arrivals_do_not_starve_offline_jobs(priority: Priority, target_ms: float, policy: str) -> None:
    fleet = Fleet(worker(held=7), policy)
    for n in range(10):
        fleet.submit(f"t:{n}", priority)
    for n in range(int(target_ms / ROUND_MS) + 11 * LATE_TURN):
        fleet.submit(f"online:{n}", HIGH)
        fleet.round()
    waits = [fleet.waits[f"t:{n}"] for n in range(10)]
    assert waits == sorted(waits)  # the lane keeps its order
    assert max(waits) <= target_ms + 11 * LATE_TURN * ROUND_MS


@pytest.mark.parametrize(("pending", "kv"), [(4_000, 0), (0, 850)])
def test_overdue_offline_jobs_move_however_strained_the_workers_are(pending: int, kv: int) -> None:
    strained = worker(held=7, pending_prefill_tokens=pending, kv_used_tokens=kv, kv_total_tokens=1_000)
    fleet = Fleet(strained, "predictive")
    small = replace(job("t:0", LOW), spec=spec(10, 10))
    fleet.lanes[LOW] = [replace(small, ref=f"t:{n}", submitted_ms=NOW_MS - 599_000) for n in range(5)]
    for n in range(40 * LATE_TURN):
        fleet.lanes[HIGH].append(replace(small, ref=f"online:{n}", priority=HIGH, submitted_ms=fleet.now_ms - 400))
        fleet.round()
    assert sum(ref.startswith("online") for ref in fleet.waits) > 200
    assert max(fleet.waits[f"t:{n}"] for n in range(5)) <= 600_000 + 6 * LATE_TURN * ROUND_MS
    assert min(fleet.waits[f"t:{n}"] for n in range(5)) > 600_000


def test_a_backlog_for_hours_hardly_delays_online_jobs() -> None:
    fleet = Fleet(worker(held=7))
    for n in range(1_000):
        fleet.submit(f"batch:{n}", LOW)
    fleet.now_ms += 5 * 3_600_000
    for n in range(400):
        if n % 2:
            fleet.submit(f"online:{n}", HIGH)
        fleet.round()
    assert max(wait for ref, wait in fleet.waits.items() if ref.startswith("online")) <= ROUND_MS
    assert sum(ref.startswith("batch") for ref in fleet.waits) >= 200


def test_a_medium_flood_does_not_starve_low_jobs() -> None:
    fleet = Fleet(worker(held=7))
    fleet.submit("low", LOW)
    for n in range(13_000):
        fleet.submit(f"medium:{n}", MEDIUM)
        fleet.submit(f"more:{n}", MEDIUM)  # twice what the worker can do
        fleet.round()
    assert fleet.waits["low"] <= 600_000 + 2 * LATE_TURN * ROUND_MS


def test_an_empty_worker_without_the_prefix_takes_over_once_its_holder_is_behind() -> None:
    shared = spec(1_000, 10, ("a", "b", "c"))
    warm, cold = worker("warm", slots=64, prefixes=("a", "b", "c")), worker("cold", slots=64)
    taken = Counter(a.worker for a in choose((lane(HIGH, 100, of=shared),), (warm, cold)).assignments)
    assert taken["warm"] > taken["cold"] >= 40
    first = [a.worker for a in choose((lane(HIGH, 8, of=shared),), (warm, cold)).assignments]
    assert first[0] == "warm"
    busy = replace(warm, held=50, report=LoadReport(capacity=64, running=50, kv_used_tokens=20_000))
    assert choose((lane(HIGH, 1, of=shared),), (busy, cold)).assignments[0].worker == "cold"


def test_a_struck_job_gets_its_empty_worker_on_a_busy_fleet() -> None:
    fleet = Fleet(worker(held=7))
    fleet.submit("t:struck", HIGH, strikes=2)
    held = 7
    for n in range(100):
        before = len(fleet.waits)
        fleet.worker = replace(fleet.worker, held=held)
        fleet.submit(f"t:{n}", HIGH)
        fleet.round()
        if "t:struck" in fleet.waits:
            break
        held = max(0, held + len(fleet.waits) - before - 1)
    assert fleet.waits["t:struck"] <= Targets().high_ms + 10 * ROUND_MS
