"""An engine gets on, or hangs."""

from contextlib import ExitStack

import pytest

from tests.support.waiting import FakeClock
from worker.engine.vllm.metrics import Reading
from worker.engine.vllm.progress import Progress, is_hung

STALL_S = 10.0


@pytest.mark.parametrize(
    ("age_s", "flights", "stall_s", "hung"),
    [(10, 1, 10, True), (9.9, 1, 10, False), (1000, 0, 10, False), (1000, 1, 0, False)],
)
def test_it_is_hung_when_requests_see_nothing_move(age_s: float, flights: int, stall_s: float, *, hung: bool) -> None:
    assert is_hung(100 + age_s, 100, flights, stall_s) is hung


def test_idle_time_does_not_count() -> None:
    clock = FakeClock()
    progress = Progress(clock)
    clock.advance(1000)
    assert not progress.is_hung(STALL_S)
    with progress.flight():
        assert not progress.is_hung(STALL_S)
        clock.advance(STALL_S)
        assert progress.is_hung(STALL_S)
    assert not progress.is_hung(STALL_S)


def test_requests_that_come_to_a_hung_engine_do_not_hide_it() -> None:
    clock = FakeClock()
    progress = Progress(clock)
    with ExitStack() as flights:
        for _ in range(5):
            flights.enter_context(progress.flight())
            clock.advance(STALL_S / 4)
        assert progress.is_hung(STALL_S)
        progress.moved()
        assert not progress.is_hung(STALL_S)


def test_counters_that_move_are_progress_and_those_that_stand_are_none() -> None:
    clock = FakeClock()
    progress = Progress(clock)
    with progress.flight():
        for tokens in range(5):
            clock.advance(STALL_S * 0.9)
            progress.read(Reading(running=1, generated_tokens=tokens))
            assert not progress.is_hung(STALL_S)
        clock.advance(STALL_S)
        progress.read(Reading(running=7, waiting=9, generated_tokens=4))
        assert progress.is_hung(STALL_S)
        progress.read(Reading(kv_share=0.1, generated_tokens=4))
        assert not progress.is_hung(STALL_S)
