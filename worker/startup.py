"""What a worker needs from Redis: an answer, the function library, and its models' names."""

import asyncio
from collections.abc import Sequence

from redis.asyncio import Redis

from protocol import store
from protocol.call import patiently, run
from protocol.errors import LibraryMissing, SetupError
from protocol.functions import leave, register
from protocol.handle import Shard
from protocol.log import get_logger
from protocol.messages import ModelRecord

LIBRARY_LOOK_S = 0.2
LIBRARY_SOON_S = 5.0
"""A scheduler that is started together with its workers has loaded it by then."""
_log = get_logger("worker")


async def wait_for_store(redis: Redis, url: str, shard: Shard, nobody: str, patience_s: float) -> None:
    """Wait until Redis answers and has the function library; `nobody` is a worker id that is not used.

    Raises:
        StoreUnavailable: it did not answer within `patience_s`.
        LibraryMissing: nobody loaded the library within as long again.
    """
    where = store.redacted(url)
    await store.wait_until_up(
        redis, patience_s, lambda: _log.warning("waiting_for_redis", url=where, patience_s=patience_s)
    )
    loop = asyncio.get_running_loop()
    began_s, told = loop.time(), False
    while True:
        try:
            # Nobody leaves: a harmless call that needs no other right than a worker has.
            await patiently(lambda: run(redis, leave(shard, nobody)), patience_s)
        except LibraryMissing as error:
            waited_s = loop.time() - began_s
            if waited_s >= patience_s:
                raise
            if not told and waited_s >= LIBRARY_SOON_S:
                _log.warning("waiting_for_library", url=where, patience_s=patience_s, hint=error.hint)
                told = True
            await asyncio.sleep(LIBRARY_LOOK_S)
        else:
            return


async def register_models(redis: Redis, models: Sequence[str], served: ModelRecord) -> None:
    """Say which models the pool serves.

    Raises:
        SetupError: another pool serves one of them.
        StoreUnavailable: Redis does not answer.
    """
    for model in models:
        if other := await run(redis, register(model, served)):
            raise SetupError(
                f"the model {model!r} is served by the pool {other!r} already, not by {served.pool!r}",
                f"Use --pool {other}, or serve it under another name.",
            )
