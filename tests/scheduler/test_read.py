"""How many round trips a leader's look takes."""

from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from protocol import watch
from protocol.call import Call, run, run_all
from protocol.errors import FleetError
from scheduler import read as read_module
from scheduler.policy.prefix_map import PrefixMap
from scheduler.read import Reader
from tests.support.builders import BOSS, SHARD
from tests.support.driver import Driver


async def test_a_job_that_its_hint_names_is_read_in_the_first_round_trip(
    driver: Driver, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips: list[int] = []

    async def counted(store: Redis, calls: Sequence[Call[Any]]) -> list[Any | FleetError]:
        trips.append(len(calls))
        return await run_all(store, calls)

    monkeypatch.setattr(read_module, "run_all", counted)
    driver.lead()
    reader = Reader(redis, SHARD, PrefixMap(), BOSS)
    await reader.read()
    handle = driver.submit("a").handle
    hinted = await run(redis, watch.hint(SHARD, 1))
    assert hinted == handle.ref
    trips.clear()
    snapshot = await reader.read(hinted)
    assert [job.ref for lane in snapshot.lanes for job in lane] == [handle.ref]
    assert len(trips) == 1
    assert await run(redis, watch.hint(SHARD, 1)) == ""


async def test_a_deposed_leader_learns_of_it_as_it_reads_and_clears_no_hint(driver: Driver, redis: Redis) -> None:
    driver.lead()
    reader = Reader(redis, SHARD, PrefixMap(), "deposed")
    handle = driver.submit("a").handle
    assert (await reader.read()).leads is False
    assert await run(redis, watch.hint(SHARD, 1)) == handle.ref
