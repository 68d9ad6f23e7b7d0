"""Scaling against a model of engines: it promotes in time, puts back when calm, and never flaps."""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.messages import LoadReport
from protocol.states import Priority
from scheduler.policy.demand import Demand, Kind, enough, first_token_ms
from scheduler.policy.order import Targets
from scheduler.policy.scaling import (
    PACE,
    PATIENCE_MS,
    Plan,
    Sight,
    Standby,
    State,
    look,
    refused,
)
from scheduler.policy.view import REFERENCE, FleetView, JobView, WorkerView
from tests.scheduler.policy.build import job, lane, spec

TARGETS = Targets()
LOOK_MS = 1_000
NOW_MS = 1_000_000_000.0


@dataclass
class Shard:
    """A shard under a steady load, as a fluid: prompts that exceed what is left of the engines' time pile up."""

    active: int
    standbys: int
    rate: float
    """Prompt tokens, each ms."""
    decode: float
    """Reference engines that the streams keep busy."""
    kv_tokens: int = 100
    promotes_ms: float = 3_000
    prompt: int = 1_000
    now_ms: float = NOW_MS
    pending: float = 0.0
    state: State = field(default_factory=State)
    due: dict[str, float] = field(default_factory=dict)
    changes: list[tuple[float, str]] = field(default_factory=list)
    plan: Plan = field(default_factory=lambda: Plan(0, 0.0))

    def __post_init__(self) -> None:
        self.names = [f"w{n}" for n in range(self.active + self.standbys)]
        self.working = set(self.names[: self.active])

    def step(self) -> None:
        """A second passes, and then a look."""
        self.now_ms += LOOK_MS
        self.working |= {name for name, at_ms in self.due.items() if at_ms <= self.now_ms}
        busy = min(1.0, self.decode / len(self.working))
        able = (1 - busy) * len(self.working) / REFERENCE.token_ms
        self.pending = max(0.0, self.pending + (self.rate - able) * LOOK_MS)
        reserves = [name for name in self.names[1:] if name in self.working]
        standbys = [Standby(name, warm=True) for name in self.names if name not in self.working]
        sight = Sight(
            FleetView((), tuple(map(self.worker, self.names))),
            (),
            standbys,
            reserves,
            1,
            int(self.rate * LOOK_MS),
            [self.prompt],
        )
        self.plan, self.state = look(sight, self.now_ms, self.state, TARGETS)
        if self.plan.promote:
            self.due[self.plan.promote] = self.now_ms + self.promotes_ms
            self.changes.append((self.now_ms, "promote"))
        if self.plan.rest:
            self.due.pop(self.plan.rest, None)
            self.working.discard(self.plan.rest)
            self.changes.append((self.now_ms, "rest"))

    def worker(self, name: str) -> WorkerView:
        if name not in self.working:
            return WorkerView(name, name, active=False, slots=1_000, held=0)
        count = len(self.working)
        prefill = min(0.95, REFERENCE.token_ms * self.rate / count)
        # decode = (base − a)(1 − u) / base, for the base: what streams and their KV add to a step.
        share = min(0.97, self.decode / count / (1 - prefill))
        extra_ms = REFERENCE.base_ms * share / (1 - share)
        streams = round(extra_ms / (REFERENCE.token_ms + REFERENCE.decode_kv_ms * self.kv_tokens))
        pending = round(self.pending / count)
        report = LoadReport(
            running=streams,
            capacity=1_000,
            pending_prefill_tokens=pending,
            prefilling=1 if pending else 0,
            kv_used_tokens=streams * self.kv_tokens,
            kv_total_tokens=1_000_000,
        )
        held = streams + report.prefilling
        return WorkerView(name, name, True, 1_000, held, report=report, reported_ms=self.now_ms)

    def run(self, seconds: int) -> "Shard":
        for _ in range(seconds):
            self.step()
        return self


def sight(*workers: WorkerView, jobs: tuple[JobView, ...] = (), **more: object) -> Sight:
    return replace(Sight(FleetView((jobs,) if jobs else (), workers)), **more)  # type: ignore[arg-type]  # fields by name


def idle(name: str = "w", *, active: bool = True) -> WorkerView:
    return WorkerView(name, name, active, 8, 0)


def test_a_fleet_at_rest_needs_one_and_changes_nothing() -> None:
    shard = Shard(active=1, standbys=2, rate=0.0, decode=0.0).run(300)
    assert (shard.changes, shard.plan.wanted) == ([], 1)


def test_an_overload_promotes_after_two_seconds_and_one_at_a_time() -> None:
    shard = Shard(active=1, standbys=3, rate=1.6 / REFERENCE.token_ms, decode=0.5).run(60)
    assert [what for _, what in shard.changes] == ["promote"] * 3
    moments = [at_ms for at_ms, _ in shard.changes]
    assert moments[0] - NOW_MS >= PACE.promotion_ms
    assert all(later - sooner >= shard.promotes_ms for sooner, later in pairwise(moments))


def test_jobs_that_were_turned_away_are_an_overload_too() -> None:
    """Nobody waits in the lanes then: what can't be served in time is refused, or put off."""
    state = State(looked_ms=NOW_MS, over_ms=NOW_MS - PACE.over_ms)
    quiet = sight(idle("a"), standbys=[Standby("b", warm=True)])
    plan, _ = look(quiet, NOW_MS, state, TARGETS)
    assert (plan.wanted, plan.promote) == (1, "")
    plan, _ = look(replace(quiet, turned_away=1), NOW_MS, state, TARGETS)
    assert (plan.wanted, plan.promote) == (2, "b")


def test_calm_puts_back_after_a_minute() -> None:
    shard = Shard(active=1, standbys=1, rate=1.2 / REFERENCE.token_ms, decode=0.1).run(60)
    assert [what for _, what in shard.changes] == ["promote"]
    shard.rate = shard.decode = 0.01
    eased_ms = shard.now_ms
    shard.run(300)
    assert [what for _, what in shard.changes] == ["promote", "rest"]
    assert PACE.calm_ms <= shard.changes[-1][0] - eased_ms <= 2 * PACE.calm_ms
    assert shard.plan.wanted == 1


def test_only_reserves_are_put_back() -> None:
    shard = Shard(active=3, standbys=0, rate=0.01, decode=0.01)
    shard.names = ["w0", *shard.names[1:]]
    plain = sight(*(idle(name) for name in ("a", "b", "c")))
    state = State(looked_ms=NOW_MS, calm_ms=NOW_MS - 2 * PACE.calm_ms, changed_ms=0)
    assert look(plain, NOW_MS + 1, state, TARGETS)[0].rest == ""
    assert look(replace(plain, reserves=["b"]), NOW_MS + 1, state, TARGETS)[0].rest == "b"


def test_a_warm_standby_comes_before_one_that_sleeps_and_one_that_failed() -> None:
    asleep, warm, failed = Standby("a", warm=False), Standby("z", warm=True), Standby("b", warm=True)
    state = State(looked_ms=NOW_MS, over_ms=NOW_MS - PACE.over_ms, tried=("b",))
    waiting = sight(jobs=(job("one"),), standbys=[asleep, warm, failed])
    assert look(waiting, NOW_MS, state, TARGETS)[0].promote == "z"
    assert look(replace(waiting, standbys=[asleep, failed]), NOW_MS, state, TARGETS)[0].promote == "a"
    assert look(replace(waiting, standbys=[failed]), NOW_MS, state, TARGETS)[0].promote == "b"


def test_while_a_promotion_is_under_way_nothing_else_changes() -> None:
    state = State(looked_ms=NOW_MS, over_ms=NOW_MS, changed_ms=NOW_MS, promoting="a", promotion_ms=500)
    waiting = sight(idle("a", active=False), jobs=(job("one"),), standbys=[Standby("b", warm=True)])
    plan, state = look(waiting, NOW_MS + PATIENCE_MS, state, TARGETS)
    assert plan.promote == ""
    plan, state = look(waiting, NOW_MS + PATIENCE_MS + 1, state, TARGETS)
    assert (plan.promote, state.tried) == ("b", ("a",))


def test_a_worker_that_says_no_is_asked_last() -> None:
    state = refused(State(promoting="a"))
    assert (state.promoting, state.tried) == ("", ("a",))
    assert refused(state) is state


def test_the_length_of_a_promotion_is_learned() -> None:
    state = State(looked_ms=NOW_MS, changed_ms=NOW_MS, promoting="a")
    _, state = look(sight(idle("a")), NOW_MS + 4_000, state, TARGETS)
    assert (state.promoting, state.promotion_ms) == ("", 4_000)
    state = replace(state, changed_ms=NOW_MS + 10_000, promoting="b")
    _, state = look(sight(idle("b")), NOW_MS + 12_000, state, TARGETS)
    assert state.promotion_ms == 3_000


def test_jobs_that_nobody_takes_promote_whatever_their_lane() -> None:
    shard = sight(jobs=lane(Priority.LOW, 1), standbys=[Standby("a", warm=True)])
    state = State(looked_ms=NOW_MS, over_ms=NOW_MS - PACE.over_ms)
    assert look(shard, NOW_MS, state, TARGETS)[0] == Plan(1, math.inf, promote="a")
    assert look(replace(shard, view=FleetView((), ())), NOW_MS, state, TARGETS)[0].promote == ""


def test_a_long_offline_queue_wants_more_workers_and_promotes_none() -> None:
    jobs = lane(Priority.LOW, 10, of=spec(1_000, 500))
    shard = sight(idle(), jobs=jobs, depths=[100_000], standbys=[Standby("a", warm=True)])
    state = State(looked_ms=NOW_MS)
    for second in range(10):
        plan, state = look(shard, NOW_MS + 1_000 * second, state, TARGETS)
        assert plan.promote == ""
    assert 4 <= plan.wanted <= 12


def test_the_wish_falls_after_a_minute_to_the_most_that_was_wished_meanwhile() -> None:
    state = State(looked_ms=NOW_MS, wanted=9, lower=4, lower_ms=NOW_MS - PACE.calm_ms + 1)
    plan, state = look(sight(idle()), NOW_MS, state, TARGETS)
    assert plan.wanted == 9
    plan, state = look(sight(idle()), NOW_MS + 1, state, TARGETS)
    assert plan.wanted == 4


@given(
    active=st.integers(1, 5),
    standbys=st.integers(0, 5),
    prefill=st.floats(0, 6),
    decode=st.floats(0, 5),
    promotes_ms=st.floats(50, 20_000),
    prompt=st.integers(50, 9_000),
)
# Slots, not time, are what one worker lacks here: with slower steps each job stays for longer.
@example(active=4, standbys=0, prefill=0.0, decode=0.75, promotes_ms=50.0, prompt=50)
@settings(max_examples=25, deadline=None)
def test_it_never_flaps_and_never_rests_the_last(active: int, standbys: int, prefill: float, **how: Any) -> None:
    """A steady load: promotions until what piled up at first is gone, then rests, and then nothing any more."""
    shard = Shard(active, standbys, prefill / REFERENCE.token_ms, **how)
    wishes: list[int] = []
    for _ in range(700):
        shard.step()
        assert shard.working
        wishes = [] if shard.pending else [*wishes, shard.plan.wanted]
    whats = [what for _, what in shard.changes]
    assert whats == sorted(whats)
    moments = [at_ms for at_ms, _ in shard.changes]
    assert all(later - sooner >= how["promotes_ms"] for sooner, later in pairwise(moments[: whats.count("promote")]))
    assert len(set(wishes[200:])) <= 1


@given(
    demand=st.builds(
        Demand,
        st.integers(0, 20_000),
        st.floats(0, 20),
        st.floats(0, 20),
        st.integers(0, 10**6),
        st.integers(0, 500),
        low_ms=st.floats(0, 10**8),
    ),
    strength=st.floats(0.25, 4),
    count=st.integers(1, 60),
)
def test_more_workers_are_never_worse(demand: Demand, strength: float, count: int) -> None:
    kind = Kind(strength, 16)
    assert first_token_ms(demand, kind, count + 1) <= first_token_ms(demand, kind, count)
    assert enough(demand, kind, count + 1, TARGETS) >= enough(demand, kind, count, TARGETS)


@pytest.mark.parametrize(("count", "is_enough"), [(0, False), (1, False), (2, True)])
def test_a_hand_worked_case(count: int, is_enough: bool) -> None:
    """0.8 engines of prompts and streams on one worker: a step takes 7 / 0.2 = 35 ms, a first token of 1,000 tokens
    17.5 + 26.6 / 0.2 = 150 ms, which is half of 500 at most; but 8,000 pending tokens more take 156 / 0.2 = 780 ms.
    """
    demand = Demand(1_000, 0.4, 0.4)
    assert first_token_ms(demand, Kind(), 1) == pytest.approx(17.5 + (7 + 19.5 + 0.585) / 0.2)
    assert enough(demand, Kind(), 1, TARGETS)
    assert enough(replace(demand, pending_tokens=8_000), Kind(), count, TARGETS) is is_enough
