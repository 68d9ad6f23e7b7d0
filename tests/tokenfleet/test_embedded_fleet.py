"""The embedded fleet as demo, benchmarks and tests use it: what dies comes again."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from redis.asyncio import Redis

from producer.fleet import Fleet
from protocol.errors import StoreUnavailable, WaitTimeout
from protocol.states import State
from tests.support.waiting import eventually
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

OPTIONS = FleetOptions(engine="sim", model="Demo/Model")
READY_S = 60


@pytest.fixture
async def embedded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbeddedFleet]:
    monkeypatch.setenv("TOKENFLEET_LEASE_S", "2")
    async with EmbeddedFleet(OPTIONS) as fleet:
        await fleet.ready(READY_S)
        yield fleet


async def answered(fleet: EmbeddedFleet) -> State:
    async with Fleet(fleet.redis_url) as client:
        job = await client.submit(model=OPTIONS.model, prompt="Hello", max_tokens=3)
        return (await job.result(timeout=30)).state


async def test_what_opens_another_redis_is_not_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PASSWORD", "CA", "CERT", "KEY"):
        monkeypatch.setenv(f"TOKENFLEET_REDIS_{name}", "/of/another")
    async with EmbeddedFleet(OPTIONS) as fleet:
        await fleet.ready(READY_S)
        assert await answered(fleet) is State.COMPLETED


@pytest.mark.parametrize("name", ["worker-1", "scheduler", "valkey"])
async def test_a_killed_child_comes_again_and_jobs_are_served(embedded: EmbeddedFleet, name: str) -> None:
    before = embedded.pids()
    embedded.process(name).kill()
    await eventually(lambda: embedded.pids().get(name, before[name]) != before[name])
    assert await answered(embedded) is State.COMPLETED
    assert {other: pid for other, pid in embedded.pids().items() if other != name} == {
        other: pid for other, pid in before.items() if other != name
    }


async def test_a_killed_server_comes_again_with_its_data(embedded: EmbeddedFleet) -> None:
    assert await answered(embedded) is State.COMPLETED
    guard = embedded.pids()["valkey"]
    psutil.Process(guard).children()[0].kill()
    await eventually(lambda: embedded.pids().get("valkey", guard) != guard)
    assert await answered(embedded) is State.COMPLETED


async def fail_inside(fleet: EmbeddedFleet, family: list[psutil.Process]) -> None:
    """Note all its processes, then leave the block with an error."""
    async with fleet:
        await fleet.ready(READY_S)
        for pid in fleet.pids().values():
            family += [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        raise ZeroDivisionError


async def test_nothing_is_left_after_an_error_in_the_block() -> None:
    fleet, family = EmbeddedFleet(OPTIONS), list[psutil.Process]()
    with pytest.raises(ZeroDivisionError):
        await fail_inside(fleet, family)
    assert family
    assert not psutil.wait_procs(family, timeout=10)[1]
    assert not fleet.data.path.exists()


async def test_ready_says_what_does_not_run(tmp_path: Path) -> None:
    options = replace(OPTIONS, data=tmp_path, sim_speed=-1)
    async with EmbeddedFleet(options) as fleet:
        with pytest.raises(WaitTimeout, match="was not ready within 2 s"):
            await fleet.ready(2)


async def test_a_redis_that_has_no_time_to_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that load take all cores."""
    async with EmbeddedFleet(OPTIONS) as fleet:
        joined, left = fleet._joined, [StoreUnavailable("no answer")] * 2

        async def late(redis: Redis, since_ms: int) -> set[str]:
            if left:
                raise left.pop()
            return await joined(redis, since_ms)

        monkeypatch.setattr(fleet, "_joined", late)
        await fleet.ready(READY_S)
        assert not left
