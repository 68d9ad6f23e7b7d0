"""arq's own worker with a job that does nothing: what our drain rate is compared with."""

import os
from typing import ClassVar

from arq.connections import RedisSettings

URL_VARIABLE = "BENCH_REDIS_URL"


async def nothing(_ctx: object, number: int) -> int:
    """A job whose result is stored, as ours is."""
    return number


REDIS = RedisSettings.from_dsn(os.environ.get(URL_VARIABLE, "redis://127.0.0.1:6379"))


class Defaults:
    """Its worker as it comes; arq reads a class's own attributes only, so nothing is inherited."""

    functions: ClassVar = [nothing]
    redis_settings = REDIS
    log_results = False  # our worker logs no line a job either


class Poll10ms:
    """Its worker with a short poll, the fastest sensible setting."""

    functions: ClassVar = [nothing]
    redis_settings = REDIS
    log_results = False
    poll_delay = 0.01
