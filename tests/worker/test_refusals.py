"""How long a worker pauses whose engine answers 429 or 503, and how many jobs it takes meanwhile."""

import pytest

from tests.support.waiting import FakeClock
from worker import refusals
from worker.refusals import FIRST_PAUSE_S, JOBS_KEPT, LONGEST_PAUSE_S, TAKEN_S, Refusals

SLOTS = 8


class Gate:
    """Refusals by a clock that tests turn."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.told = 0
        self.refusals = Refusals(self.clock, self.hear)

    def hear(self) -> None:
        self.told += 1

    def refused(self, begun_s: float | None = None, retry_after_s: float = 0.0, job: str = "a") -> float:
        return self.refusals.refused(job, self.clock.monotonic() if begun_s is None else begun_s, retry_after_s)

    def answered(self, begun_s: float | None = None, job: str = "a") -> None:
        self.refusals.answered(job, self.clock.monotonic() if begun_s is None else begun_s)

    def slots(self, *begun_s: float) -> int:
        return self.refusals.slots(SLOTS, begun_s)

    def pause_s(self) -> float:
        """How long it takes nothing from now on; that time is over afterwards."""
        began_s = self.clock.monotonic()
        while not self.slots():
            self.clock.advance(0.25)
        return self.clock.monotonic() - began_s


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    monkeypatch.setattr(refusals, "chance", lambda: 0.0)
    return Gate()


def test_the_pauses_double_up_to_a_minute(gate: Gate) -> None:
    pauses = []
    for _ in range(9):
        gate.refused()
        pauses.append(gate.pause_s())
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_many_that_are_refused_at_once_are_one_step(gate: Gate) -> None:
    begun_s = gate.clock.monotonic()
    for _ in range(50):
        gate.refused(begun_s)
    gate.clock.advance(FIRST_PAUSE_S / 2)
    gate.refused(begun_s)
    assert (gate.pause_s(), gate.told) == (FIRST_PAUSE_S / 2, 1)
    # One of the first is refused late, when the pause is over.
    gate.refused(begun_s)
    assert gate.slots() == 1
    gate.refused()
    assert gate.pause_s() == 2 * FIRST_PAUSE_S


@pytest.mark.parametrize(("asked_s", "pause_s"), [(0.5, FIRST_PAUSE_S), (5.0, 5.0), (3_600.0, LONGEST_PAUSE_S)])
def test_a_retry_after_is_the_least(gate: Gate, asked_s: float, pause_s: float) -> None:
    gate.refused(retry_after_s=asked_s)
    assert gate.pause_s() == pause_s
    gate.refused()
    assert gate.pause_s() == 2 * FIRST_PAUSE_S


def test_the_longest_retry_after_counts_of_those_refused_at_once(gate: Gate) -> None:
    begun_s = gate.clock.monotonic()
    gate.refused(begun_s, 5.0)
    gate.refused(begun_s, 30.0)
    gate.refused(begun_s, 1.0)
    assert gate.pause_s() == 30.0


def test_an_answer_ends_the_episode_and_the_next_begins_anew(gate: Gate) -> None:
    for _ in range(4):
        gate.refused()
        gate.pause_s()
    gate.answered()
    assert (gate.slots(), gate.refusals.last, gate.told) == (SLOTS, False, 5)
    gate.refused()
    assert (gate.pause_s(), gate.refusals.last) == (FIRST_PAUSE_S, True)


def test_a_stream_that_goes_on_is_no_answer(gate: Gate) -> None:
    begun_s = gate.clock.monotonic()
    gate.clock.advance(1)
    gate.refused()
    gate.answered(begun_s)
    assert gate.slots(begun_s) == 0
    gate.clock.advance(FIRST_PAUSE_S)
    gate.answered(begun_s)
    assert gate.slots(begun_s) == 2, "one more than it holds"


def test_one_asks_after_a_pause_and_no_other_before_it_is_answered(gate: Gate) -> None:
    gate.refused()
    gate.pause_s()
    asks_s = gate.clock.monotonic()
    assert gate.slots() == 1
    assert gate.slots(asks_s) == 0
    gate.clock.advance(TAKEN_S / 2)
    assert gate.slots(asks_s) == 0
    gate.answered(asks_s)
    assert gate.slots(asks_s) == SLOTS


def test_one_that_was_taken_and_says_nothing_yet_keeps_no_other_out(gate: Gate) -> None:
    gate.refused()
    gate.pause_s()
    asks_s = gate.clock.monotonic()
    gate.clock.advance(TAKEN_S)
    assert gate.slots(asks_s) == 2


def test_a_job_waits_for_longer_each_time_that_it_is_refused_though_others_are_answered(gate: Gate) -> None:
    waits = []
    for _ in range(8):
        waits.append(gate.refused(job="odd"))
        gate.pause_s()
        gate.answered(job="other")
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert gate.refused(job="other") == 1
    assert gate.refused(job="another", retry_after_s=7) == 7
    gate.answered(job="odd")
    assert gate.refused(job="odd") == 1


def test_jobs_are_not_remembered_for_ever(gate: Gate) -> None:
    gate.refused(job="first")
    for number in range(JOBS_KEPT):
        gate.refused(job=str(number))
    assert gate.refused(job="first") == 1


def test_no_more_than_the_engine_can_hold(gate: Gate) -> None:
    begun_s = [gate.clock.monotonic() - 1] * SLOTS
    gate.refused()
    gate.clock.advance(FIRST_PAUSE_S)
    assert gate.slots(*begun_s) == SLOTS


def test_chance_spreads_the_pauses(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "chance", lambda: 0.999)
    gate.refused(retry_after_s=10)
    assert 14.5 < gate.pause_s() <= 15
