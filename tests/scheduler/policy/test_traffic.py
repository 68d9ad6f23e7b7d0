"""What kinds of jobs there were lately."""

import pytest

from scheduler.policy.traffic import OFFLINE_MS, ONLINE_MS, Traffic
from scheduler.policy.view import Lately

SEEN_MS = 1_000_000.0


def test_nothing_was_seen_yet() -> None:
    assert Traffic().lately(SEEN_MS) == Lately(online=False, offline=False)


@pytest.mark.parametrize("back", [1, -1], ids=["onwards", "the clock went back"])
def test_each_kind_counts_for_its_time(back: int) -> None:
    seen = Traffic(online_ms=SEEN_MS, offline_ms=SEEN_MS)
    for after_ms, expected in (
        (0, Lately(online=True, offline=True)),
        (OFFLINE_MS - 1, Lately(online=True, offline=True)),
        (OFFLINE_MS + 1, Lately(online=True, offline=False)),
        (ONLINE_MS - 1, Lately(online=True, offline=False)),
        (ONLINE_MS + 1, Lately(online=False, offline=False)),
    ):
        assert seen.lately(SEEN_MS + back * after_ms) == expected
