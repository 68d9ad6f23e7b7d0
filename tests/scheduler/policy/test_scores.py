"""The formulas, worked out by hand."""

import pytest

from protocol.load_score import load_score
from protocol.prefix import PREFIX_CHARS
from scheduler.policy.least_work import LeastWork
from scheduler.policy.load_score import LoadScore
from scheduler.policy.view import WorkerView
from tests.scheduler.policy.build import HIGH, choose, job, lane, spec, weighed, worker


@pytest.mark.parametrize(
    ("memory", "running", "capacity", "kv", "expected"),
    [
        (0.0, 0, 8, 0.0, 0.0),
        (1.0, 8, 8, 1.0, 1.0),
        (0.5, 4, 8, 0.5, 0.5),
        (0.9, 2, 8, 0.1, 0.465),
        (0.0, 99, 8, 0.0, 0.3),  # more running than capacity counts as capacity
        (1.0, 0, 1, 0.0, 0.4),
        (0.0, 0, 1, 1.0, 0.3),
    ],
)
def test_the_load_score(memory: float, running: int, capacity: int, kv: float, expected: float) -> None:
    assert load_score(memory, running, capacity, kv) == pytest.approx(expected)


@pytest.mark.parametrize(("memory", "full"), [(0.0, False), (0.74, False), (0.76, True), (1.0, True)])
def test_a_load_score_of_nine_tenths_is_full(memory: float, full: bool) -> None:
    busy = worker(held=7, running=8, kv_total_tokens=1_000, kv_used_tokens=1_000, memory=memory)
    assert LoadScore().full(weighed(busy)) is full
    assert bool(choose((lane(HIGH, 1),), (busy,), "load-score").assignments) is not full


def test_load_score_picks_the_lowest_by_reports_alone() -> None:
    flooded = worker("flooded", 6, running=0, memory=0.1, unseen_jobs=6, unseen_prompt=90_000)
    busy = worker("busy", 1, running=1, memory=0.1)
    assert [a.worker for a in choose((lane(HIGH, 1),), (busy, flooded), "load-score").assignments] == ["flooded"]


def test_equal_scores_are_decided_by_chance() -> None:
    equals = (worker("a"), worker("b"), worker("c"))
    picked = {
        choose((lane(HIGH, 1),), equals, policy, seed=seed).assignments[0].worker
        for seed in range(40)
        for policy in ("least-work", "load-score")
    }
    assert picked == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (worker(slots=1), 200),  # its own prompt, twice
        (worker(slots=1, pending_prefill_tokens=1_000), 1_200),
        (worker(slots=1, pending_prefill_tokens=1_000, unseen_prompt=500), 1_700),
        (worker(held=4), (200 + 16 * 4) / 8),
        (worker(slots=1, kv_total_tokens=9_000, kv_used_tokens=4_000, unseen_kv=400), 200 + 16 * 11),
        (worker(held=2, pending_prefill_tokens=300, kv_used_tokens=800), (300 + 200 + 16 * (2 + 2)) / 8),
    ],
)
def test_least_work(view: WorkerView, expected: float) -> None:
    assert LeastWork().score(job("t:1"), weighed(view)) == pytest.approx(expected)


def test_least_work_counts_what_was_assigned_since_the_report() -> None:
    flooded = worker("flooded", 6, running=0, unseen_jobs=6, unseen_prompt=90_000)
    busy = worker("busy", 1)
    assert [a.worker for a in choose((lane(HIGH, 1),), (flooded, busy)).assignments] == ["busy"]


def test_one_long_prompt_outweighs_ten_short_ones() -> None:
    long, short = worker("long", 1, 16, unseen_prompt=30_000), worker("short", 10, 16, unseen_prompt=1_000)
    assert {a.worker for a in choose((lane(HIGH, 5),), (long, short)).assignments} == {"short"}


@pytest.mark.parametrize(
    ("held", "used", "unseen", "total", "full"),
    [
        (1, 899, 0, 1_000, False),
        (1, 900, 0, 1_000, True),
        (1, 500, 400, 1_000, True),
        (0, 1_000, 0, 1_000, False),  # what an empty worker shows is cache that it gives up
        (1, 900, 0, 0, False),  # unknown size
    ],
)
def test_least_work_is_full_before_the_kv_cache_overflows(
    held: int, used: int, unseen: int, total: int, full: bool
) -> None:
    view = worker(held=held, kv_used_tokens=used, unseen_kv=unseen, kv_total_tokens=total)
    assert LeastWork().full(weighed(view)) is full


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [((), 3_000), (("x",), 3_000), (("a",), 2_744), (("a", "b"), 2_488), (("a", "x"), 2_744), (("x", "b"), 3_000)],
)
def test_a_shared_prefix_is_computed_once_a_round(prefix: tuple[str, ...], expected: int) -> None:
    chosen = weighed(worker())
    chosen.take(job("t:1", of=spec(prefix=("a", "b", "c"))))
    assert chosen.uncached_tokens(job("t:2", of=spec(3_000, prefix=prefix))) == expected


@pytest.mark.parametrize(
    ("cached", "sent", "given_before", "expected"),
    [
        ({"a", "b"}, (), (), 488),
        ({"a", "c"}, (), (), 744),  # only what leads
        ({"b"}, (), (), 1_000),
        ({"a"}, ("b",), (), 488),  # any will do
        ({"a"}, (), ("b",), 488),
        (set(), ("a",), ("b",), 488),
    ],
)
def test_what_a_workers_cache_holds_is_not_computed(
    cached: set[str], sent: tuple[str, ...], given_before: tuple[str, ...], expected: int
) -> None:
    chosen = weighed(worker(prefixes=cached, sent=sent))
    chosen.prefixes.update(given_before)
    assert chosen.uncached_tokens(job("t:1", of=spec(1_000, prefix=("a", "b")))) == expected


def test_one_token_is_always_computed() -> None:
    chosen = weighed(worker(prefixes="ab"))
    assert chosen.uncached_tokens(job("t:1", of=spec(512, prefix=("a", "b")))) == 1


def test_hashes_of_long_prompts_stand_for_more() -> None:
    blocks = tuple(f"{n}" for n in range(len(PREFIX_CHARS)))
    chosen = weighed(worker(prefixes=blocks))
    assert chosen.uncached_tokens(job("t:1", of=spec(150_000, prefix=blocks))) == 150_000 - 512 * 1_024 // 4


def test_jobs_that_share_a_prefix_go_to_one_worker() -> None:
    group = lane(HIGH, 4, of=spec(2_000, 10, ("a", "b", "c", "d", "e", "f", "g", "h", "i")))
    decision = choose((group,), (worker("a"), worker("b")))
    assert len({a.worker for a in decision.assignments}) == 1
