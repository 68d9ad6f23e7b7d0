"""The copy of the table of models."""

import pytest
from redis.asyncio import Redis

from producer.routing import FRESH_S, Routes
from protocol.call import run
from protocol.errors import UnknownModel
from protocol.functions import register
from protocol.messages import ModelRecord
from tests.support.waiting import FakeClock


async def test_the_table_is_read_again_on_a_miss_and_when_it_is_old(redis: Redis) -> None:
    clock = FakeClock()
    routes = Routes(redis, clock)
    await run(redis, register("a", ModelRecord(pool="p")))
    await routes.prepare({"a"}, 1)
    assert routes.find("a").shards == 1
    await run(redis, register("a", ModelRecord(pool="p", shards=2)))
    await routes.prepare({"a"}, 1)
    assert routes.find("a").shards == 1
    clock.advance(FRESH_S + 0.1)
    await routes.prepare({"a"}, 1)
    assert routes.find("a").shards == 2
    await run(redis, register("b", ModelRecord(pool="q")))
    await routes.prepare({"b"}, 1)
    assert routes.find("b").pool == "q"
    await routes.prepare({"c"}, 1)
    with pytest.raises(UnknownModel, match="Known models: a, b"):
        routes.find("c")
