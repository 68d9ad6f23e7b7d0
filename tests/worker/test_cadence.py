"""When a worker's next report is due."""

import asyncio
from itertools import pairwise

import pytest

from worker import cadence as cadence_module
from worker.cadence import Cadence

LONG_S = 30.0


async def is_due(turn: "asyncio.Task[None]", within_s: float = 5.0) -> bool:
    done, _ = await asyncio.wait([turn], timeout=within_s)
    return bool(done)


async def test_a_turn_comes_in_time_though_nothing_happens() -> None:
    await asyncio.wait_for(Cadence(0.01, 0.0).turn(), 5)


async def test_news_brings_the_next_turn_at_once_but_not_too_soon_after_the_last() -> None:
    cadence, loop = Cadence(LONG_S, 0.1), asyncio.get_running_loop()
    turns = []
    for _ in range(3):
        cadence.soon()
        cadence.soon()
        await asyncio.wait_for(cadence.turn(), 5)
        turns.append(loop.time())
    assert all(later - sooner >= 0.099 for sooner, later in pairwise(turns))


async def test_what_is_urgent_does_not_wait() -> None:
    cadence = Cadence(LONG_S, LONG_S)
    for _ in range(2):
        cadence.now()
        await asyncio.wait_for(cadence.turn(), 5)
    cadence.soon()
    turn = asyncio.create_task(cadence.turn())
    assert not await is_due(turn, 0.05)
    cadence.now()
    assert await is_due(turn)


async def test_a_turn_settles_all_that_came_before_it() -> None:
    cadence = Cadence(LONG_S, 0.01)
    cadence.now()
    cadence.soon()
    await asyncio.wait_for(cadence.turn(), 5)
    turn = asyncio.create_task(cadence.turn())
    assert not await is_due(turn, 0.05)
    turn.cancel()
    cadence.stop()


async def test_what_has_happened_goes_before_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cadence_module, "CALM_S", 0.05)
    cadence, loop = Cadence(LONG_S, 0.0), asyncio.get_running_loop()
    begun_s = loop.time()
    cadence.soon()
    await asyncio.wait_for(cadence.turn(), 5)
    assert loop.time() - begun_s >= 0.049
