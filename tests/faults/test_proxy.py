"""The proxy does to traffic what it says, or the faults that are played with it would show nothing."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as Broken

from protocol import store
from protocol.call import Call, run
from protocol.errors import StoreUnavailable
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import eventually

PING = Call(("PING",), bool)


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def redis(proxy: Proxy) -> AsyncIterator[Redis]:
    client = store.connect(proxy.url)
    yield client
    await client.aclose()


async def test_it_passes_traffic_on_and_slices_it(proxy: Proxy, redis: Redis) -> None:
    proxy.slice_bytes = 1
    value = "x" * 1_000
    await redis.set("a", value)
    assert await redis.get("a") == value.encode()
    await redis.delete("a")


async def test_latency_counts_in_each_direction(proxy: Proxy, redis: Redis) -> None:
    await run(redis, PING)
    proxy.latency_s = 0.05
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await run(redis, PING)
    assert loop.time() - began_s >= 0.1


async def test_a_dropped_reply_was_asked_for_and_done(proxy: Proxy, redis: Redis) -> None:
    await run(redis, PING)
    proxy.drop_reply(b"INCR")
    with pytest.raises(Broken):
        await redis.incr("n")
    assert (await redis.getdel("n"), proxy.dropped) == (b"1", 1)


async def test_cut_means_no_connection_and_reset_means_new_ones(proxy: Proxy, redis: Redis) -> None:
    await run(redis, PING)
    proxy.reset()
    with pytest.raises(StoreUnavailable):
        await run(redis, PING)
    await run(redis, PING)
    proxy.cut()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await run(redis, PING)
    proxy.mend()
    assert await run(redis, PING)
    assert len(proxy.accepted) >= 3


async def test_a_blackhole_keeps_connections_and_answers_nothing(proxy: Proxy, redis: Redis) -> None:
    await run(redis, PING)
    proxy.blackhole()
    asking = asyncio.create_task(run(redis, PING))
    done, _ = await asyncio.wait([asking], timeout=0.1)
    assert not done
    proxy.mend()
    assert await asking


async def test_connections_stay_where_they_are_when_the_address_changes(proxy: Proxy, redis: Redis) -> None:
    await run(redis, PING)
    proxy.point_at(1)
    assert await run(redis, PING)
    proxy.reset()

    async def refused() -> bool:
        with pytest.raises(StoreUnavailable):
            await run(redis, PING)
        return True

    await eventually(refused)
