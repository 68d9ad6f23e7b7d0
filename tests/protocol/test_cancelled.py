"""A command that is cancelled on its way keeps its reply to itself: who uses the client next gets its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as NoConnection

from protocol import store
from protocol.call import Call, heed_cancel, run, run_all
from protocol.cancellation import afterwards
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import eventually

LATENCY_S = 0.3
COUNT = Call(("INCR", "asked"), int)
Ask = Callable[[Redis], Awaitable[object]]


@pytest.fixture
async def direct(server: Server) -> AsyncIterator[Redis]:
    """What others see of the server."""
    client = store.connect(server.url)
    yield client
    await client.aclose()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancellation_that_comes_with_a_commands_end_is_heeded(fails: bool) -> None:
    begun = asyncio.Event()

    async def swallowing() -> None:
        """As `asyncio.wait_for` before Python 3.12, when what it waits for ends at the same moment."""
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if fails:
            raise NoConnection("the server went away")

    asking = asyncio.create_task(heed_cancel(swallowing()))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


def names() -> list[str]:
    return [f"name-{number}" for number in range(8)]


def get(name: str) -> Call[bytes]:
    return Call(("GET", name), bytes)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda redis: run(redis, COUNT), id="one"),
        pytest.param(lambda redis: run_all(redis, [COUNT, COUNT]), id="pipeline"),
        pytest.param(lambda redis: redis.blpop(["nobody writes"], timeout=1), id="blocking"),
    ],
)
async def test_a_cancelled_command_hands_its_reply_to_nobody(server: Server, direct: Redis, ask: Ask) -> None:
    await direct.mset({name: name for name in names()})

    async def on_its_way() -> bool:
        blocked: int = (await direct.info("clients"))["blocked_clients"]
        return await direct.exists("asked") == 1 or blocked == 1

    async with Proxy(server.port) as proxy:
        # All callers share the one connection.
        client = store.connect(f"{proxy.url}?max_connections=1")
        try:
            await client.ping()
            proxy.latency_s = LATENCY_S
            asking = asyncio.ensure_future(ask(client))
            await eventually(on_its_way)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            proxy.latency_s = 0
            told = await asyncio.gather(*(run(client, get(name)) for name in names() * 4))
            assert told == [name.encode() for name in names() * 4]
            assert await run_all(client, [get(name) for name in names()]) == [name.encode() for name in names()]
        finally:
            await client.aclose()


async def test_what_a_cancelled_task_does_afterwards_has_time_limits_and_heeds_another_cancellation() -> None:
    """Debian's Python 3.11.2 raises CancelledError when a time limit passes in a cancelled task itself."""
    seen: list[str] = []
    waiting = asyncio.Event()

    async def tidy() -> None:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            seen.append("passed")
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await afterwards(tidy())

    task = asyncio.create_task(work())
    await asyncio.sleep(0)  # It has begun: one that is cancelled before never does.
    task.cancel()
    await asyncio.wait_for(waiting.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["passed", "cancelled"]
