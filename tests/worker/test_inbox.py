"""The inbox's reader: each entry once, and everything again when something may have been missed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest
from redis.asyncio import Redis

from protocol.clock import Clock
from protocol.errors import StoreUnavailable
from protocol.messages import InboxEntry
from tests.support.builders import SHARD
from tests.support.driver import Driver
from tests.support.waiting import FakeClock, eventually
from worker.inbox import Inbox


class Taker:
    """Keeps what it was given; fails the first `failures` times."""

    def __init__(self, failures: int = 0) -> None:
        self.taken: list[list[str]] = []
        self._failures = failures

    async def take(self, entries: Sequence[InboxEntry]) -> None:
        self.taken.append([entry.ref for entry in entries])
        if len(self.taken) <= self._failures:
            raise StoreUnavailable("Redis went away in the middle")


@asynccontextmanager
async def reading(redis: Redis, taker: Taker, clock: Clock | None = None) -> AsyncIterator[Inbox]:
    inbox = Inbox(redis, SHARD, "w1", taker.take, clock or FakeClock())
    task = asyncio.create_task(inbox.run())
    yield inbox
    task.cancel()
    await asyncio.wait([task])


def assigned(driver: Driver, own_id: str) -> None:
    driver.lead()
    driver.join()
    assert isinstance(driver.assign(driver.submit(own_id).handle), int)


async def test_entries_come_once_and_in_order(driver: Driver, redis: Redis) -> None:
    taker = Taker()
    assigned(driver, "a")
    async with reading(redis, taker):
        await eventually(lambda: taker.taken == [["t:a"]])
        assigned(driver, "b")
        await eventually(lambda: taker.taken == [["t:a"], ["t:b"]])


async def test_what_could_not_be_taken_comes_again(driver: Driver, redis: Redis) -> None:
    taker = Taker(failures=2)
    assigned(driver, "a")
    async with reading(redis, taker):
        await eventually(lambda: taker.taken == [["t:a"]] * 3)


async def test_beats_that_know_of_more_for_long_make_it_read_all_again(driver: Driver, redis: Redis) -> None:
    taker, clock = Taker(), FakeClock()
    assigned(driver, "a")
    async with reading(redis, taker, clock) as inbox:
        await eventually(lambda: taker.taken)
        for held, known, after_s in ((1, 0, 0), (1, 1, 1), (1, 0, 0), (1, 0, 0.1)):
            clock.advance(after_s)
            inbox.compare(held, known)
        assigned(driver, "b")
        await eventually(lambda: taker.taken[-1] == ["t:b"])
        clock.advance(0.1)
        inbox.compare(2, 1)
        # It waits for an entry at the moment; the next read begins anew.
        assigned(driver, "c")
        await eventually(lambda: ["t:a", "t:b", "t:c"] in taker.taken)


async def test_what_has_begun_goes_on_before_more_is_asked_for(
    driver: Driver, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two turns of the loop: aiohttp writes a request in a task of its own."""
    order: list[str] = []
    taker, ask = Taker(), cast("Callable[..., Awaitable[object]]", redis.execute_command)

    async def two_turns() -> None:
        order.append("begins")
        await asyncio.create_task(written())

    async def written() -> None:
        order.append("written")

    async def take(entries: Sequence[InboxEntry]) -> None:
        await taker.take(entries)
        tasks.append(asyncio.create_task(two_turns()))

    async def asked(*words: object) -> object:
        order.append("asked")
        return await ask(*words)

    tasks: list[asyncio.Task[None]] = []
    monkeypatch.setattr(redis, "execute_command", asked)
    inbox = Inbox(redis, SHARD, "w1", take, FakeClock())
    assigned(driver, "a")
    reading = asyncio.create_task(inbox.run())
    await eventually(lambda: order.count("asked") == 2)
    reading.cancel()
    await asyncio.wait([reading, *tasks])
    assert order == ["asked", "begins", "written", "asked"]
