"""A large fleet: a round looks at the likely workers, and finds nearly the same ones as if it had looked at all."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from scheduler.policy.decide import decide
from scheduler.policy.policy import Policy
from scheduler.policy.prefix_map import PrefixMap
from scheduler.policy.registry import POLICIES
from scheduler.policy.shortlist import HOLDERS, LOOKS, Everybody, Shortlist
from scheduler.policy.view import FleetView, JobView, WorkerView
from scheduler.policy.window import Window
from scheduler.policy.worker import Worker
from tests.scheduler.policy.build import HIGH, NOW_MS, TARGETS, choose, job, lane, refs, spec, weighed, worker

BY_SCORE = sorted(name for name, policy in POLICIES.items() if type(policy).pick is Policy.pick)


def workers(count: int, rng: random.Random) -> tuple[WorkerView, ...]:
    """A fleet under way: some stream much, some compute prompts, some are twice as slow; each holds some prefixes."""
    return tuple(
        worker(
            f"w{n}",
            held := rng.randrange(60),
            256,
            memory=rng.random(),
            speed=rng.choice([1.0, 1.0, 1.0, 2.0]),
            prefixes=[f"{chat}:{block}" for chat in rng.sample(range(50), 3) for block in range(rng.randrange(1, 7))],
            pending_prefill_tokens=rng.choice([0, 0, 300, 2_000, 5_000]),
            prefilling=held > 0,
            kv_used_tokens=held * rng.randrange(300, 3_000),
            kv_total_tokens=430_000,
        )
        for n in range(count)
    )


def jobs(count: int, rng: random.Random) -> tuple[JobView, ...]:
    """Mostly short prompts and some very long ones; half of them belong to a chat with a prefix."""
    made = []
    for n in range(count):
        chat, blocks = rng.randrange(50), rng.choice([0, rng.randrange(1, 7)])
        prompt = 256 * blocks + 1 + int(rng.lognormvariate(6, 1.2))
        made.append(job(f"t:{n}", of=spec(prompt, 100, tuple(f"{chat}:{block}" for block in range(blocks)))))
    return tuple(made)


def looked_at(
    policy: Policy, views: Sequence[WorkerView], lanes: Sequence[JobView], *, index: bool
) -> tuple[Shortlist, list[Worker]]:
    prefixes = PrefixMap()
    for view in views:
        prefixes.told(view.id, view.prefixes, NOW_MS)
    sight = FleetView((tuple(lanes),), tuple(views), holders=prefixes.holders if index else None)
    working = [weighed(view) for view in views]
    return Shortlist(working, {one.id: one for one in working}, policy, sight), working


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("name", BY_SCORE)
def test_it_finds_the_worker_that_a_full_scan_finds(name: str, index: bool) -> None:
    policy, rng = POLICIES[name], random.Random(3)
    same, excess = 0, 0.0
    lanes = jobs(200, rng)
    shortlist, everyone = looked_at(policy, workers(300, rng), lanes, index=index)
    for waiting in lanes:
        found = min(policy.score(waiting, one) for one in shortlist.with_room(waiting))
        best = min(everyone, key=lambda one: policy.score(waiting, one))
        lowest = policy.score(waiting, best)
        same += found == lowest
        excess += found / lowest - 1 if lowest else 0.0
        best.take(waiting)
        shortlist.given(waiting, best)
    # A product of two figures depends on the job's size most.
    assert same >= (0.85 if name == "lmetric" else 0.95) * len(lanes)
    assert excess < 0.01 * len(lanes)


def test_it_looks_at_few() -> None:
    rng = random.Random(4)
    lanes = jobs(50, rng)
    shortlist, _ = looked_at(POLICIES["predictive"], workers(300, rng), lanes, index=True)
    assert all(len(shortlist.with_room(waiting)) <= LOOKS + HOLDERS for waiting in lanes)


def test_those_that_hold_the_most_of_the_prefix_come_into_view() -> None:
    idle = [worker(f"idle-{n}", prefixes=["a"]) for n in range(100)]
    deep = worker("deep", 5, prefixes=["a", "b", "c"])
    lanes = lane(HIGH, 1, of=spec(1_000, prefix=("a", "b", "c", "d")))
    shortlist, _ = looked_at(POLICIES["predictive"], [*idle, deep], lanes, index=True)
    assert "deep" in {one.id for one in shortlist.with_room(lanes[0])}


def test_what_the_round_gave_counts_as_held() -> None:
    lanes = lane(HIGH, 2, of=spec(1_000, prefix=("a", "b")))
    shortlist, everyone = looked_at(
        POLICIES["predictive"], [worker(f"{n}", n % 7) for n in range(200)], lanes, index=True
    )
    everyone[-1].take(lanes[0])
    shortlist.given(lanes[0], everyone[-1])
    assert everyone[-1] in shortlist.with_room(lanes[1])


def test_full_workers_are_seen_only_where_a_policy_looks_past_them() -> None:
    working = [weighed(worker(f"w{n}", n)) for n in range(50)]
    room = {one.id: one for one in working[20:]}
    lanes = lane(HIGH, 1)
    shortlist = Shortlist(working, room, POLICIES["least-requests"], FleetView((lanes,), ()))
    assert shortlist.with_room(lanes[0])[0] is working[20]
    assert shortlist.able(lanes[0])[0] is working[0]


def test_a_worker_that_serves_the_model_is_found_however_busy() -> None:
    plain = [worker(f"plain-{n}", models=("m",)) for n in range(100)]
    lanes = (job("t:1", of=spec(model="adapter")),)
    decision = choose((lanes,), (*plain, worker("both", 7, models=("m", "adapter"))), "predictive")
    assert [assignment.worker for assignment in decision.assignments] == ["both"]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_round_of_a_large_fleet_gives_everybody_his_place(name: str) -> None:
    rng = random.Random(6)
    views = tuple(replace(view, report=view.report.model_copy(update={"memory": 0.0})) for view in workers(100, rng))
    lanes = (jobs(100, rng),)
    first = choose(lanes, views, name, seed=1)
    assert name == "predictive" or sorted(refs(first)) == sorted(waiting.ref for waiting in lanes[0])
    assert first == choose(lanes, views, name, seed=1)


def test_the_whole_fleet_is_used_when_there_is_much_to_do() -> None:
    views = tuple(worker(f"w{n}", slots=4) for n in range(64))
    decision = decide(
        FleetView((lane(HIGH, 256),), views), NOW_MS, random.Random(0), POLICIES["predictive"], TARGETS, Window()
    )
    taken = [assignment.worker for assignment in decision.assignments]
    assert len(taken) == 256
    assert {taken.count(view.id) for view in views} == {4}


def test_a_small_fleet_is_looked_at_whole() -> None:
    working = [weighed(worker(f"w{n}", n)) for n in range(30)]
    everybody = Everybody(working, {one.id: one for one in working[1:]})
    assert everybody.able(job("t:1")) == working
    assert everybody.with_room(job("t:1")) == working[1:]
