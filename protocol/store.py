"""Connections to Redis: with time limits, and with no secrets in what is shown."""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import hiredis
from redis import Redis as SyncRedis
from redis.asyncio import BlockingConnectionPool, Connection, Redis

from protocol import tls
from protocol.call import Call, run
from protocol.errors import SetupError, StoreUnavailable

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 5.0
"""Longer than any blocking read of ours."""
BLOCK_MS = 1_000
"""How long blocking reads wait: short enough to notice a stop."""
CONNECTIONS = 64


class FastConnection(Connection):
    """Encodes commands in C: redis-py 5 has that for blocking connections only. A tenth of a worker's time."""

    def pack_command(self, *args: Any) -> list[bytes]:  # noqa: ANN401 - redis-py's own signature
        """One command as RESP; a command of two words, as redis-py writes some, becomes two arguments."""
        name = args[0]
        if isinstance(name, str) and " " in name:
            args = (*name.split(), *args[1:])
        return [hiredis.pack_command(args)]


def connect(url: str) -> Redis:
    """An asyncio client; it connects at the first call.

    Raises:
        SetupError: the URL is malformed, or its TLS options are not what they must be.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            tls.checked(url),
            connection_class=FastConnection,
            max_connections=CONNECTIONS,
            timeout=ANSWER_TIMEOUT_S,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=ANSWER_TIMEOUT_S,
        )
    except ValueError:
        raise _bad_url() from None
    return Redis.from_pool(pool)


def connect_sync(url: str) -> SyncRedis:
    """A blocking client, for threads; raises as `connect` does."""
    try:
        return SyncRedis.from_url(
            tls.checked(url), socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=ANSWER_TIMEOUT_S
        )
    except ValueError:
        raise _bad_url() from None


def _bad_url() -> SetupError:
    # What redis-py says about it may quote a piece of the password.
    return SetupError("malformed Redis URL", "Use redis://HOST:PORT/DB, rediss://… or unix://….")


def redacted(url: str) -> str:
    """The URL without user and password, fit for logs.

    Raises:
        SetupError: the URL is malformed.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _bad_url() from None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def wait_until_up(redis: Redis, patience_s: float, on_wait: Callable[[], None]) -> None:
    """Wait until Redis answers; `on_wait` is called once, when it does not answer at first.

    Raises:
        StoreUnavailable: it did not answer within `patience_s` seconds.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + patience_s
    told = False
    while True:
        try:
            await run(redis, Call(("PING",), bool))
        except StoreUnavailable:
            if loop.time() >= give_up:
                raise
            if not told:
                on_wait()
            told = True
            await asyncio.sleep(0.2)
        else:
            return
