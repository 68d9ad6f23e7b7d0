"""When a worker's prefixes are read, and what is kept of them."""

import pytest

from protocol.errors import StoreUnavailable, WrongType
from protocol.messages import LoadReport
from protocol.watch import WorkerNow
from scheduler.prefixes import Prefixes


def at(version: int) -> WorkerNow:
    return WorkerNow("gpu-0", "active", 4, 0, solo=False, report_ms=0, report=LoadReport(), prefixed=version)


def read(prefixes: Prefixes, version: int, now_s: float, *hashes: str) -> None:
    prefixes.learn([("w1", version)], [frozenset(hashes)], now_s)


def test_they_are_read_when_they_changed() -> None:
    prefixes = Prefixes()
    assert prefixes.due({"w1": at(0)}, 10) == []
    assert prefixes.due({"w1": at(1), "w2": at(0)}, 10) == ["w1"]
    read(prefixes, 1, 10, "a")
    assert prefixes.due({"w1": at(1)}, 99) == []
    assert prefixes.hashes() == {"w1": {"a"}}


def test_they_are_read_at_most_once_a_second() -> None:
    prefixes = Prefixes()
    read(prefixes, 1, 10, "a")
    assert prefixes.due({"w1": at(2)}, 10.9) == []
    assert prefixes.hashes() == {"w1": {"a"}}
    assert prefixes.due({"w1": at(2)}, 11) == ["w1"]
    read(prefixes, 2, 11)
    assert prefixes.hashes() == {"w1": frozenset()}


def test_they_are_forgotten_with_their_worker() -> None:
    prefixes = Prefixes()
    read(prefixes, 1, 10, "a")
    assert prefixes.due({}, 10.1) == []
    assert prefixes.hashes() == {}
    assert prefixes.due({"w1": at(1)}, 10.2) == ["w1"]


def test_a_broken_set_is_an_empty_one_and_an_outage_is_raised() -> None:
    prefixes = Prefixes()
    prefixes.learn([("w1", 1)], [WrongType("a string")], 10)
    assert prefixes.hashes() == {"w1": frozenset()}
    with pytest.raises(StoreUnavailable):
        prefixes.learn([("w1", 2)], [StoreUnavailable("away")], 11)
