"""arq's own worker with a job that does nothing: what our drain rate is compared with."""

import os
from typing import ClassVar

from arq.connections import RedisSettings

URL_VARIABLE = "BENCH_REDIS_URL"


async def nothing(_ctx: object, number: int) -> int:
    """A job whose result is stored, as ours is."""
    return number


class Defaults:
    """arq as it comes."""

    functions: ClassVar = [nothing]
    redis_settings = RedisSettings.from_dsn(os.environ.get(URL_VARIABLE, "redis://127.0.0.1:6379"))
    log_results = False  # our worker logs no line a job either


class Poll10ms(Defaults):
    """arq with a short poll, its fastest sensible setting."""

    poll_delay = 0.01
