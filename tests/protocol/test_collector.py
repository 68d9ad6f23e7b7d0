"""The garbage collector, as a role that serves sets it."""

import gc
from collections.abc import Iterator

import pytest

from protocol import collector


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


class Knot:
    """One that only the collector frees."""

    def __init__(self) -> None:
        self.own = self


def test_what_is_there_is_looked_at_no_more_and_garbage_still_goes() -> None:
    before = len(gc.get_objects())
    collector.settle()
    assert len(gc.get_objects()) < before / 20, "a full collection goes through all of it"
    knots = [Knot() for _ in range(10)]
    del knots
    assert gc.collect() >= 10


def test_the_young_are_collected_seldom() -> None:
    collector.settle()
    assert gc.get_threshold() == (collector.YOUNG, 10, 10)
