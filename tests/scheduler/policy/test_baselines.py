"""The peers' formulas, each on a table worked out by hand."""

import random
from collections import Counter

import pytest

from scheduler.policy.kv_cost import KvCost
from scheduler.policy.lmetric import LMetric
from scheduler.policy.registry import POLICIES
from scheduler.policy.view import JobView, WorkerView
from tests.scheduler.policy.build import HIGH, choose, fleet, job, lane, spec, weighed, worker

PREFIX = ("p1", "p2", "p3", "p4")
"""Of 1,024 tokens."""


def picked(policy: str, waiting: JobView, *views: WorkerView, seeds: int = 1, turn: int = 0) -> set[str]:
    """Whom the policy picks, over some seeds."""
    sight = fleet(*views, turn=turn)
    return {POLICIES[policy].pick(waiting, sight.workers, sight, random.Random(seed)).id for seed in range(seeds)}


def test_round_robin_takes_turns() -> None:
    views = tuple(worker(name, 2 * place) for place, name in enumerate("abc"))
    assert [picked("round-robin", job("t:1"), *views, turn=turn) for turn in range(6)] == [{n} for n in "abcabc"]


def test_round_robin_goes_on_within_a_round_and_past_those_that_may_not() -> None:
    views = worker("a"), worker("b", 8), worker("c"), worker("d")
    decision = choose((lane(HIGH, 7),), views, "round-robin", turn=4)
    assert [assignment.worker for assignment in decision.assignments] == list("accdacc")


@pytest.mark.parametrize(
    ("held", "expected"), [((3, 1, 2), {"b"}), ((2, 2, 5), {"a", "b"}), ((0, 0, 0), {"a", "b", "c"})]
)
def test_least_requests(held: tuple[int, ...], expected: set[str]) -> None:
    views = tuple(worker(name, count, running=0) for name, count in zip("abc", held, strict=True))
    assert picked("least-requests", job("t:1"), *views, seeds=40) == expected


def test_power_of_two_draws_each_pair_as_often_and_takes_the_emptier() -> None:
    views = tuple(worker(name, held, running=0) for name, held in zip("abcd", (4, 3, 2, 1), strict=True))
    sight, policy = fleet(*views), POLICIES["power-of-two"]
    rng = random.Random(5)
    counts = Counter(policy.pick(job("t:1"), sight.workers, sight, rng).id for _ in range(6_000))
    # Six pairs: d wins three of them, c two, b one; a is never the emptier.
    assert counts["a"] == 0
    assert [counts[name] for name in "bcd"] == pytest.approx([1_000, 2_000, 3_000], rel=0.1)
    assert picked("power-of-two", job("t:1"), worker("only", 7)) == {"only"}


@pytest.mark.parametrize(
    ("warm_held", "cold_held", "prompt", "expected"),
    [
        (10, 0, 2_000, "warm"),  # 1,024 of 2,000 match: above one half
        (10, 0, 2_048, "cold"),  # exactly one half does not count
        (64, 0, 2_000, "warm"),  # 64 more are not yet uneven
        (65, 0, 2_000, "cold"),
        (195, 130, 2_000, "warm"),  # 65 more, but 1.5 times as many exactly
        (196, 130, 2_000, "cold"),
    ],
)
def test_cache_aware(warm_held: int, cold_held: int, prompt: int, expected: str) -> None:
    warm = worker("warm", warm_held, 512, prefixes=PREFIX)
    cold = worker("cold", cold_held, 512)
    assert picked("cache-aware", job("t:1", of=spec(prompt, prefix=PREFIX)), warm, cold) == {expected}


def test_cache_aware_takes_the_longest_match_and_of_equal_ones_the_least_loaded() -> None:
    views = (
        worker("idle", prefixes=PREFIX[:3]),
        worker("busy", 5, prefixes=PREFIX),
        worker("busier", 6, prefixes=PREFIX),
    )
    assert picked("cache-aware", job("t:1", of=spec(1_100, prefix=PREFIX)), *views) == {"busy"}
    assert picked("cache-aware", job("t:1", of=spec(1_100)), *views) == {"idle"}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (worker(), (2_000 + 2_000) / 16),  # its own prompt: to compute, then to hold
        (worker(prefixes=PREFIX), (976 + 2_000) / 16),
        (worker(held=3, kv_used_tokens=1_600), (2_000 + 3_600) / 16),
        (worker(held=3, pending_prefill_tokens=800, kv_used_tokens=1_600), (2_800 + 3_600) / 16),
        (worker(held=4, unseen_prompt=400, unseen_kv=640), (2_400 + 2_640) / 16),
    ],
)
def test_kv_cost(view: WorkerView, expected: float) -> None:
    assert KvCost().score(job("t:1", of=spec(2_000, prefix=PREFIX)), weighed(view)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (worker(), 2_000 * 1),
        (worker(prefixes=PREFIX), 976 * 1),
        (worker(held=3), 2_000 * 4),
        (worker(held=3, pending_prefill_tokens=800), 2_800 * 4),
        (worker(held=4, pending_prefill_tokens=800, unseen_prompt=400, prefixes=PREFIX), 2_176 * 5),
    ],
)
def test_lmetric(view: WorkerView, expected: float) -> None:
    assert LMetric().score(job("t:1", of=spec(2_000, prefix=PREFIX)), weighed(view)) == expected


@pytest.mark.parametrize("policy", ["kv-cost", "lmetric"])
def test_a_round_counts_what_it_gave(policy: str) -> None:
    decision = choose((lane(HIGH, 4, of=spec(2_000)),), (worker("a"), worker("b")), policy)
    assert Counter(assignment.worker for assignment in decision.assignments) == {"a": 2, "b": 2}


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"predictive", "load-score", "least-work"}))
def test_a_baseline_binds_at_once_whatever_waits_on_the_engine(policy: str) -> None:
    late = job("t:late", waited=60_000, of=spec(50_000))
    busy = worker("busy", 7, slow_share=1.0, pending_prefill_tokens=90_000, kv_total_tokens=400_000)
    assert [a.ref for a in choose(((late,),), (busy,), policy).assignments] == ["t:late"]
    crowded = worker("crowded", 7, kv_total_tokens=400_000, kv_used_tokens=390_000)
    assert [a.ref for a in choose(((late,),), (crowded,), policy).assignments] == ["t:late"]
