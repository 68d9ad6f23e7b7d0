"""Connections to Redis: with time limits, and with no secrets in what is shown."""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import hiredis
from redis import Connection as SyncConnection
from redis import ConnectionPool as SyncConnectionPool
from redis import Redis as SyncRedis
from redis import SSLConnection as SyncSSLConnection
from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection

from protocol import tls
from protocol.call import Call, run
from protocol.errors import SetupError, StoreUnavailable
from protocol.primary import FleetConnection, SyncFleetConnection, SyncToPrimary, TlsConnection, ToPrimary, sentinels_of

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 5.0
"""Longer than any blocking read of ours."""
BLOCK_MS = 1_000
"""How long blocking reads wait: short enough to notice a stop."""
CONNECTIONS = 64


class _Pool(BlockingConnectionPool):
    """Hands out idle connections, and takes them back, without redis-py's lock and time limit.

    Those are a quarter of what a command takes, and needed only where somebody waits for a connection.
    """

    async def get_connection(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - redis-py's own signature
        """An idle connection on which there is nothing to read; else a new one, or the first that is given back."""
        idle = self._available_connections
        # A socket file has redis-py's own connections.
        if idle and isinstance(idle[-1], FleetConnection) and idle[-1].silent and not self._awaited:
            connection = idle.pop()
            self._in_use_connections.add(connection)
            return connection
        return await super().get_connection(*args, **kwargs)

    async def release(self, connection: Any) -> None:  # noqa: ANN401 - as above
        """Take one back."""
        if self._awaited:
            await super().release(connection)
        else:
            self._in_use_connections.remove(connection)
            self._available_connections.append(connection)

    @property
    def _awaited(self) -> bool:
        return self._condition.locked() or bool(self._condition._waiters)  # noqa: SLF001 - asyncio has no way to ask


class FastConnection(FleetConnection):
    """Encodes commands in C: redis-py 5 has that for blocking connections only. A tenth of a worker's time."""

    def pack_command(self, *args: Any) -> list[bytes]:  # noqa: ANN401 - redis-py's own signature
        """One command as RESP; a command of two words, as redis-py writes some, becomes two arguments."""
        name = args[0]
        if isinstance(name, str) and " " in name:
            args = (*name.split(), *args[1:])
        return [hiredis.pack_command(args)]


class _SyncTls(SyncFleetConnection, SyncSSLConnection):
    """Over TLS, for threads."""


class _FastToPrimary(ToPrimary, FastConnection):
    """To the primary that Sentinel names."""


class _TlsToPrimary(ToPrimary, TlsConnection):
    """As above, over TLS."""


class _SyncTlsToPrimary(SyncToPrimary, SyncSSLConnection):
    """As above, for threads."""


_LIMITS = {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": ANSWER_TIMEOUT_S}


def connect(url: str) -> Redis:
    """An asyncio client; it connects at the first call, and to the primary where the URL names sentinels.

    Raises:
        SetupError: the URL is malformed, or its TLS options are not what they must be.
    """
    options: dict[str, Any] = {"max_connections": CONNECTIONS, "timeout": ANSWER_TIMEOUT_S, **_LIMITS}
    try:
        url = tls.checked(url)
        if behind := sentinels_of(url):
            sentinels, own = behind
            kind = _TlsToPrimary if own.pop("connection_class", None) else _FastToPrimary
            pool = _Pool(connection_class=kind, sentinels=sentinels, **options | own)
        else:
            pool = _Pool.from_url(url, connection_class=FastConnection, **options)
            if pool.connection_class is SSLConnection:
                pool.connection_class = TlsConnection
    except ValueError:
        raise _bad_url() from None
    return Redis.from_pool(pool)


def connect_sync(url: str) -> SyncRedis:
    """A blocking client, for threads; raises as `connect` does."""
    try:
        url = tls.checked(url)
        if behind := sentinels_of(url):
            sentinels, own = behind
            kind = _SyncTlsToPrimary if own.pop("connection_class", None) else SyncToPrimary
            pool = SyncConnectionPool(connection_class=kind, sentinels=sentinels, **_LIMITS | own)
        else:
            pool = SyncConnectionPool.from_url(url, **_LIMITS)
            # To redis-py a class that is given counts more than the URL's scheme.
            kinds = {SyncConnection: SyncFleetConnection, SyncSSLConnection: _SyncTls}
            pool.connection_class = kinds.get(pool.connection_class, pool.connection_class)
    except ValueError:
        raise _bad_url() from None
    return SyncRedis.from_pool(pool)


def _bad_url() -> SetupError:
    # What redis-py says about it may quote a piece of the password.
    return SetupError(
        "malformed Redis URL",
        "Use redis://HOST:PORT/DB, rediss://…, unix://… or redis+sentinel://HOST,HOST/SERVICE/DB.",
    )


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
