"""When a worker's prefixes are read, and what the map is told."""

import pytest

from protocol.errors import StoreUnavailable, WrongType
from protocol.messages import LoadReport
from protocol.watch import WorkerNow
from scheduler.policy.prefix_map import PrefixMap
from scheduler.prefixes import Prefixes


def at(version: int) -> WorkerNow:
    return WorkerNow("gpu-0", "active", 4, 0, solo=False, report_ms=0, report=LoadReport(), prefixed=version)


@pytest.fixture
def told() -> PrefixMap:
    return PrefixMap()


@pytest.fixture
def prefixes(told: PrefixMap) -> Prefixes:
    return Prefixes(told)


def read(prefixes: Prefixes, version: int, now_s: float, *hashes: str) -> None:
    prefixes.learn([("w1", version)], [frozenset(hashes)], now_s, 1_000 * now_s)


def test_they_are_read_when_they_changed(prefixes: Prefixes, told: PrefixMap) -> None:
    assert prefixes.due({"w1": at(0)}, 10) == []
    assert prefixes.due({"w1": at(1), "w2": at(0)}, 10) == ["w1"]
    read(prefixes, 1, 10, "a")
    assert prefixes.due({"w1": at(1)}, 99) == []
    assert told.told_by("w1") == {"a"}


def test_they_are_read_at_most_once_a_second(prefixes: Prefixes, told: PrefixMap) -> None:
    read(prefixes, 1, 10, "a")
    assert prefixes.due({"w1": at(2)}, 10.9) == []
    assert told.told_by("w1") == {"a"}
    assert prefixes.due({"w1": at(2)}, 11) == ["w1"]
    read(prefixes, 2, 11)
    assert told.told_by("w1") == frozenset()


def test_a_worker_that_is_gone_is_read_anew_when_it_comes_back(prefixes: Prefixes) -> None:
    read(prefixes, 1, 10, "a")
    assert prefixes.due({}, 10.1) == []
    assert prefixes.due({"w1": at(1)}, 10.2) == ["w1"]


def test_a_broken_set_is_an_empty_one_and_an_outage_is_raised(prefixes: Prefixes, told: PrefixMap) -> None:
    told.told("w1", frozenset({"a"}), 0)
    prefixes.learn([("w1", 1)], [WrongType("a string")], 10, 0)
    assert told.told_by("w1") == frozenset()
    with pytest.raises(StoreUnavailable):
        prefixes.learn([("w1", 2)], [StoreUnavailable("away")], 11, 0)
