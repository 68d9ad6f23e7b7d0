"""Tenants share a lane by what their jobs cost: lanes, order and policy together, on a worker that ends job by job."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages import JobSpec
from protocol.states import Priority
from scheduler.policy.decide import decide
from scheduler.policy.order import LATE_TURN, Targets
from scheduler.policy.registry import POLICIES
from scheduler.policy.view import HEADS, FleetView, JobView
from scheduler.policy.window import Window
from tests.scheduler.policy.build import HIGH, LOW, MEDIUM, NOW_MS, TARGETS, spec, worker
from tokenfleet.simulate.engine import WorkerSpec
from tokenfleet.simulate.job import Request
from tokenfleet.simulate.lanes import Lanes
from tokenfleet.simulate.scenario import Scenario
from tokenfleet.simulate.world import World

TEN = [f"few:{n}" for n in range(10)]
FAIR = sorted(set(POLICIES) - {"predictive"})
"""Those that keep the lane's order."""
MINUTE = Targets(low_ms=60_000)


class Shard:
    """One worker with one free slot at any time."""

    def __init__(self, policy: str) -> None:
        self.lanes, self.started = Lanes(), list[str]()
        self._policy, self._rng, self._now_ms = POLICIES[policy], random.Random(3), NOW_MS

    def submit(self, ref: str, priority: Priority, of: JobSpec, weight: float = 1.0) -> None:
        self.lanes.of[priority].add(JobView(ref, ref, priority, of, self._now_ms), weight)

    def start_one(self) -> None:
        """A slot becomes free."""
        self._now_ms += 20
        view = FleetView(self.lanes.heads(), (worker(held=7),), len(self.started))
        for chosen in decide(view, self._now_ms, self._rng, self._policy, MINUTE, Window()).assignments:
            self.lanes.of[chosen.priority].take([chosen.ref])
            self.started.append(chosen.ref)


@given(
    st.sampled_from(FAIR), st.sampled_from(list(Priority)), st.integers(0, 60), st.integers(1, 40), st.integers(1, 5)
)
@settings(deadline=None, max_examples=40)
def test_ten_jobs_beside_a_flood_wait_as_if_it_were_ten(
    policy: str, priority: Priority, before: int, size: int, factor: int
) -> None:
    """Each waits for what its tenant had before it, for as much of the flood, and for one job of it at most."""
    shard, few, many = Shard(policy), spec(10 * size, 0), spec(10 * size * factor, 0)
    for n in range(2 * HEADS):
        shard.submit(f"many:{n}", priority, many)
    for _ in range(before):
        shard.start_one()
    for ref in TEN:
        shard.submit(ref, priority, few)
    for _ in range(60):
        shard.start_one()
    places = [shard.started.index(ref) - before for ref in TEN]
    assert places == sorted(places)
    for own, place in enumerate(places):
        assert place <= own + own / factor + 2


@pytest.mark.parametrize("weight", [0.5, 1.0, 3.0])
def test_a_tenants_share_follows_its_weight(weight: float) -> None:
    shard = Shard("least-work")
    for n in range(300):
        shard.submit(f"plain:{n}", MEDIUM, spec(100, 0))
        shard.submit(f"vip:{n}", MEDIUM, spec(100, 0), weight)
    for _ in range(200):
        shard.start_one()
    counts = Counter(ref.partition(":")[0] for ref in shard.started)
    assert counts["vip"] / counts["plain"] == pytest.approx(weight, rel=0.05)


def test_one_who_was_away_gets_no_more_than_his_share() -> None:
    shard = Shard("least-work")
    for n in range(300):
        shard.submit(f"busy:{n}", MEDIUM, spec(100, 0))
    for _ in range(100):
        shard.start_one()
    for n in range(100):
        shard.submit(f"back:{n}", MEDIUM, spec(100, 0))
    shard.started.clear()
    for _ in range(100):
        shard.start_one()
    assert 48 <= sum(ref.startswith("back") for ref in shard.started) <= 52


@pytest.mark.parametrize("policy", ["predictive", "least-work", "kv-cost", "least-requests"])
def test_low_work_always_moves_beside_endless_online_work(policy: str) -> None:
    shard = Shard(policy)
    for n in range(20):
        shard.submit(f"low:{n}", LOW, spec(100, 10))
    for n in range(3_500):  # 70 s
        shard.submit(f"online:{n}", HIGH, spec(100, 10))
        shard.start_one()
    # From their target on each eighth start is theirs.
    lows = [place for place, ref in enumerate(shard.started) if ref.startswith("low")]
    assert len(lows) == 20
    assert lows[0] >= 3_000
    assert lows[-1] <= 3_000 + 21 * LATE_TURN


@pytest.mark.parametrize("policy", ["predictive", "least-work", "lmetric"])
def test_chats_of_one_tenant_stay_quick_in_anothers_flood(policy: str) -> None:
    flood = [Request(f"{n}", 0.0, 400, 40, tenant="many") for n in range(1_500)]
    chats = [Request(f"{n}", 1_000.0 + 400 * n, 200, 20, tenant="few") for n in range(10)]
    engine = WorkerSpec("w", sequences=64)
    outcomes = World(Scenario([*flood, *chats], [engine], POLICIES[policy], report_ms=100.0)).run()
    waits = [outcome.ttft_ms for outcome in outcomes if outcome.request.tenant == "few"]
    assert len(waits) == 10
    assert all(wait is not None and wait < TARGETS.high_ms for wait in waits)
