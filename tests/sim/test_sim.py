"""A few seeds of the simulation, each planted bug found by a seed that is known to find it, and equal runs."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.sim.planted import PLANTED

FOUND_BY = {
    "a dropped fence": 21,
    "an acknowledgement before the write": 6,
    "a reclaim that forgets one entry": 0,
}
"""Seeds that found them. A change of the product may give each seed another run: then one of the next ones does."""
SOME_MORE = 20
SUMMARY = re.compile(r"(\d+) jobs, (\d+) workers, (\d+) calls, (\d+) faults, trace ([0-9a-f]+)")


def play(seed: int, *more: str) -> tuple[int, str]:
    """As `make sim SEED=…` does: its exit status and what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.sim", "--seed", str(seed), *more], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_rule_holds(seed: int) -> None:
    status, told = play(seed)
    assert status == 0, told[-2_000:]
    counts = SUMMARY.search(told)
    assert counts is not None
    jobs, workers, calls, faults = (int(counts[number]) for number in range(1, 5))
    assert (jobs >= 30, workers >= 3, calls >= 500, faults >= 5) == (True,) * 4


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    first = FOUND_BY[bug]
    for seed in range(first, first + SOME_MORE):
        status, told = play(seed, "--planted", bug)
        if status == 1 and SUMMARY.search(told):
            assert play(seed)[0] == 0, "the seed fails without the bug too"
            return
    pytest.fail(f"no seed finds it; the last one says: {told[-500:]}")


def test_a_seed_gives_the_same_run_each_time() -> None:
    with ThreadPoolExecutor() as plays:
        (_, first), (_, again), (_, other) = plays.map(play, (5, 5, 6))
    assert first == again != other
