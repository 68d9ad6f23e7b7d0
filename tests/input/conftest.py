"""A fleet client on fakeredis that knows one model, which nobody serves: for what is refused before that matters."""

from collections.abc import AsyncIterator

import fakeredis
import pytest

from producer.fleet import Fleet
from protocol import library
from protocol.call import run
from protocol.functions import register
from protocol.messages import ModelRecord
from protocol.settings import Settings


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    redis = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer())
    await library.load(redis)
    await run(redis, register("m", ModelRecord(pool="m")))
    async with Fleet(redis=redis, settings=Settings(max_body_bytes=1_000)) as client:
        yield client
    await redis.aclose()
