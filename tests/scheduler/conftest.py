import pytest
from redis.asyncio import Redis

from tests.scheduler.stage import Stage


@pytest.fixture
def stage(redis: Redis) -> Stage:
    return Stage(redis)
