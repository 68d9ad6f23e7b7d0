"""Standby workers on a real server: promoted when online jobs would wait, put back when calm; and the outlook."""

from dataclasses import replace

import pytest
from redis.asyncio import Redis

from protocol import keys, reads
from protocol.call import run
from protocol.errors import StoreFull
from protocol.outlook import Outlook, published
from protocol.states import Priority
from scheduler.policy.scaling import Pace
from scheduler.rules import Rules
from tests.scheduler.stage import QUICK, Stage, a_loop
from tests.support.builders import SHARD
from tests.support.waiting import eventually

SOON_MS = 200.0
LOADED = {"starting": 0.1, "loading": 21.5, "warm": 3.0}


def soon(rules: Rules) -> Rules:
    """Times that a test can wait for: a look in each round, and changes soon after the first."""
    return replace(rules, pace=Pace(every_ms=10.0, over_ms=SOON_MS, calm_ms=SOON_MS, promotion_ms=SOON_MS))


async def told(redis: Redis, worker: str, word: str, count: int = 1) -> None:
    """The worker's inbox holds this command, so often."""

    async def there() -> bool:
        entries = await run(redis, reads.inbox_after(SHARD, worker, "0", 1))
        words = [entry.command for entry in entries if entry.kind == "command"]
        assert words == [word] * count, f"{worker} was told {words}"
        return True

    await eventually(there)


async def outlook(redis: Redis) -> Outlook:
    found = await run(redis, published(SHARD))
    assert found, "nothing was published"
    return found


async def test_jobs_that_nobody_takes_promote_a_warm_standby(redis: Redis, stage: Stage) -> None:
    await stage.join("asleep", state="asleep", reserve=True)
    await stage.join("warm", state="warm", reserve=True, state_s=LOADED)
    await stage.join("loading", state="loading", state_s={"loading": 900.0})
    await stage.submit()
    async with a_loop(redis, change=soon):
        await told(redis, "warm", "promote")
        assert await stage.inbox("asleep") == []
        await stage.join("warm", join=False, reserve=True)
        await eventually(lambda: holds(stage, "warm"))
        seen = await outlook(redis)
        assert (seen.policy, seen.cold_start_s) == ("predictive", 21.5)


async def holds(stage: Stage, worker: str) -> bool:
    return any(entry.kind == "assign" for entry in await stage.inbox(worker))


async def test_a_calm_shard_puts_its_reserves_back_and_keeps_the_others(redis: Redis, stage: Stage) -> None:
    await stage.join("own")
    await stage.join("reserve", reserve=True)
    async with a_loop(redis, change=soon):
        await told(redis, "reserve", "rest")
        await stage.join("reserve", state="warm", join=False, reserve=True)
        await eventually(lambda: wishes(redis, 1))
        assert await stage.inbox("own") == []


async def wishes(redis: Redis, count: int) -> bool:
    return (await outlook(redis)).workers_wanted == count


async def test_the_last_active_worker_is_never_put_back(redis: Redis, stage: Stage) -> None:
    await stage.join("reserve", reserve=True)
    async with a_loop(redis, change=soon):
        await passes(redis, 3 * SOON_MS)
        assert await stage.inbox("reserve") == []


async def passes(redis: Redis, ms: float) -> None:
    """Wait until looks have gone on for so long."""
    await eventually(lambda: outlook(redis))
    began_ms = (await outlook(redis)).at_ms

    async def later() -> bool:
        return (await outlook(redis)).at_ms - began_ms > ms

    await eventually(later)


async def test_one_that_refuses_is_passed_over(redis: Redis, stage: Stage) -> None:
    for worker in ("a", "b"):
        await stage.join(worker, state="warm", reserve=True)
    await stage.submit()
    async with a_loop(redis, change=soon):
        await told(redis, "a", "promote")
        (entry,) = await stage.inbox("a")
        await stage.join("a", state="warm", join=False, reserve=True, answered=entry.entry_id, refusal="no")
        await told(redis, "b", "promote")


async def test_off_changes_nothing_and_still_publishes(redis: Redis, stage: Stage) -> None:
    await stage.join("warm", state="warm", reserve=True)
    await stage.submit(priority=Priority.LOW)
    async with a_loop(redis, QUICK.model_copy(update={"scale": "off"}), change=soon):
        await passes(redis, 3 * SOON_MS)
        assert await stage.inbox("warm") == []
        seen = await outlook(redis)
        assert (seen.workers_wanted, seen.wait_ms, seen.cold_start_s) == (1, None, None)


async def test_predictions_are_held_against_first_tokens(redis: Redis, stage: Stage) -> None:
    await stage.join(slots=100)
    async with a_loop(redis, change=soon):
        for number in range(40):
            await stage.submit(f"{number}")
        await stage.receives(count=40)
        firsts = tuple((entry.attempt, 50) for entry in await stage.inbox())
        await stage.join(slots=100, join=False, firsts=firsts, taken=firsts[-1][0])
        low, median, high = await eventually(lambda: observed(redis))
        assert 0 < low <= median <= high


async def observed(redis: Redis) -> tuple[float, ...]:
    return (await outlook(redis)).observed


async def test_a_store_that_takes_nothing_stops_no_dispatch(
    redis: Redis, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr("scheduler.scale.publish", full)
    await stage.join()
    async with a_loop(redis, change=soon):
        for own_id in "abc":
            await stage.submit(own_id)
        assert await stage.receives(count=3) == ["a", "b", "c"]


async def test_an_outlook_that_can_not_be_read_is_none(redis: Redis, stage: Stage) -> None:
    assert await run(redis, published(SHARD)) is None
    await stage.write("HSET", keys.fleet(SHARD), "at_ms", "{")
    assert await run(redis, published(SHARD)) is None
