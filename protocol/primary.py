"""Redis that fails over: Sentinel is asked for the primary at each connection, and a server that became a replica left.

The URL of a Redis behind Sentinel names the sentinels, the service and the database:
`redis+sentinel://[user:password@]host[:26379][,host…]/service[/db]`, or `rediss+sentinel://` for TLS to all of them.
Sentinels with a password of their own get it in the query, as `sentinel_username` and `sentinel_password`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from redis import Redis as SyncRedis
from redis._parsers.hiredis import NOT_ENOUGH_DATA, _AsyncHiredisParser
from redis.asyncio import Connection, Redis, SSLConnection
from redis.asyncio.client import PubSub
from redis.asyncio.connection import parse_url
from redis.connection import Connection as SyncConnection
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from protocol import tls

SENTINEL_PORT = 26379
SENTINEL_TIMEOUT_S = 1.0
"""A sentinel that is silent for so long is passed over."""
VERDICT_S = 0.01
"""In which a server on the same network refuses a certificate. What it has not read by then, it refuses later."""
LISTENS_S = 1.0
"""How long one call listens over a client that is not ours."""
_SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
_OF_TLS = ("ssl_ca_certs", "ssl_ca_data", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile")

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Those that watch one service; each question goes over a connection of its own, for it is asked seldom.

    Attributes:
        addresses: (host, port) of each.
        service: what they call the primary and its replicas.
        tls: whether they are asked over TLS.
        options: for redis-py's connection to a sentinel.
    """

    addresses: tuple[Address, ...]
    service: str
    tls: bool
    options: Mapping[str, Any]

    async def primary(self) -> Address:
        """Where the primary is, by the first sentinel that knows.

        Raises:
            redis.exceptions.ConnectionError: none does; of what TLS failed of where that was why.
        """
        failed: list[Exception] = []
        for host, port in self.addresses:
            kind = TlsConnection if self.tls else FleetConnection
            sentinel = kind(host=host, port=port, **self.options)
            try:
                await sentinel.connect()  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
                await sentinel.send_command(*self._question)
                found = await sentinel.read_response()
            except (RedisError, OSError) as error:
                failed.append(error)
                continue
            finally:
                await sentinel.disconnect()
            if found:
                return _address(found)
        raise self._unknown(failed)

    def primary_sync(self) -> Address:
        """As `primary`, for threads."""
        failed: list[Exception] = []
        for host, port in self.addresses:
            with SyncRedis(host=host, port=port, ssl=self.tls, **self.options) as client:
                try:
                    found = client.execute_command(*self._question)
                except (RedisError, OSError) as error:
                    failed.append(error)
                    continue
            if found:
                return _address(found)
        raise self._unknown(failed)

    @property
    def _question(self) -> tuple[str, ...]:
        return "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service

    def _unknown(self, failed: Sequence[Exception]) -> NoConnection:
        told = NoConnection(f"no sentinel knows a primary of {self.service}")
        faults = [error for error in failed if tls.fault(error)]
        # Where one is merely away, it may know when it is back. One that has cut us off may have said why: its end of
        # the connection can overtake its word.
        if faults and len(failed) == len(self.addresses) and all(tls.fault(e) or tls.cut_off(e) for e in failed):
            told.__cause__ = faults[0]
        return told


def _address(found: list[bytes]) -> Address:
    host, port = found
    return host.decode(), int(port)


def sentinels_of(url: str) -> tuple[Sentinels, dict[str, Any]] | None:
    """The sentinels that a URL names, with the options of a connection to the primary; None for any other URL.

    Raises:
        ValueError: the URL is malformed.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        return None
    login, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not service or (db and not db.isdecimal()):
        msg = "a sentinel URL names its service, and a database by its number"
        raise ValueError(msg)
    addresses = tuple(_host_and_port(host) for host in hosts.split(","))
    # What a plain URL may have, this one may have too.
    plain = f"{_SCHEMES[parts.scheme]}://{login}@primary/{db}?{parts.query}"
    options: dict[str, Any] = dict(cast("Mapping[str, Any]", parse_url(plain)))
    del options["host"]
    own = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    own |= {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    # redis-py would send two commands before it reads: the second fails where the first met a closed end, and why the
    # sentinel closed it is never read.
    own |= {"lib_name": None, "lib_version": None}
    own |= {name: options[name] for name in _OF_TLS if name in options}
    return Sentinels(addresses, service, "connection_class" in options, own), options


def _host_and_port(text: str) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        msg = "a sentinel has no host"
        raise ValueError(msg)
    return parts.hostname, parts.port or SENTINEL_PORT


class FleetConnection(Connection):
    """A connection that ends when its server turns out to be a replica: the next one finds the primary.

    Its end is always one of redis-py's errors, also where uvloop has another word for it.
    """

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: ANN401, FBT001, FBT002 - as below
        """Write a command.

        Raises:
            redis.exceptions.ConnectionError: the connection is closed, or was closed meanwhile.
        """
        writer = self._writer
        try:
            # redis-py sets a time limit, which takes a task and three turns of the event loop: most of what a command
            # takes while the loop is busy. What fits into the socket needs none.
            if writer is not None and isinstance(command, list) and not (check_health and self.health_check_interval):
                writer.writelines(command)
                if not writer.transport.get_write_buffer_size():
                    return
                command = []
            await super().send_packed_command(command, check_health)
        except (RuntimeError, AttributeError) as error:
            # uvloop: "the handler is closed"; redis-py, whose writer is gone by then: "'NoneType' object has no …".
            if "closed" in str(error) or "NoneType" in str(error):
                raise NoConnection("the connection was closed meanwhile") from error
            raise

    async def can_read_destructive(self) -> bool:
        """Whether something came that nobody has asked for, or the end.

        redis-py waits for that, two turns of the event loop before each command; what has come is known without.
        """
        if self.silent:
            return False
        return bool(await super().can_read_destructive())  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here

    @property
    def silent(self) -> bool:
        """Whether it is connected, and is known to have nothing to read and no end."""
        stream, parser = self._reader, self._parser
        if stream is None or not isinstance(parser, _AsyncHiredisParser):
            return False
        unparsed: Any = parser._reader  # noqa: SLF001 - as in `buffered`
        return not (vars(stream)["_buffer"] or unparsed.has_data() or stream.at_eof() or stream.exception())

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - redis-py's own signature
        """One reply.

        Raises:
            ReadOnlyError: the server is a replica; the connection is closed.
        """
        try:
            # All but the first reply of a pipeline are here already: nothing is waited for, and no time limit set up.
            reply = await self.buffered()
            if reply is NOT_ENOUGH_DATA:
                reply = await super().read_response(*args, **kwargs)
            if isinstance(reply, ResponseError):
                raise reply
        except ReadOnlyError:
            await self.disconnect(nowait=True)
            raise
        return reply

    async def buffered(self) -> object:
        """A reply that was read from the socket with an earlier one; NOT_ENOUGH_DATA where there is none."""
        parser = self._parser
        # redis-py has no way to ask; what it does after the time limit of a reply is done here as well.
        if not isinstance(parser, _AsyncHiredisParser) or not parser._connected:  # noqa: SLF001 - see above
            return NOT_ENOUGH_DATA
        reader: Any = parser._reader  # noqa: SLF001 - see above
        try:
            reply = reader.gets()
            first = reply[0] if isinstance(reply, list) and reply else reply
            if isinstance(first, NoConnection):
                raise first
        except RedisError:
            await self.disconnect(nowait=True)
            raise
        return reply


async def heard(pubsub: PubSub) -> list[dict[str, Any]]:
    """The next messages: all that came with the first one. Of a client that is not ours also none, after a while.

    redis-py takes a dozen calls and a time limit for each message; here whoever waits watches the silence.

    Raises:
        redis.exceptions.RedisError, OSError: the connection has ended; or a subscription was refused.
    """
    connection: Any = pubsub.connection
    parser = connection._parser if isinstance(connection, FleetConnection) else None  # noqa: SLF001 - as in `buffered`
    if not isinstance(parser, _AsyncHiredisParser):
        message = await pubsub.get_message(timeout=LISTENS_S)
        return [message] if message else []
    found: list[dict[str, Any]] = []
    reply: Any = await parser.read_response()
    while reply is not NOT_ENOUGH_DATA:
        if isinstance(reply, ResponseError):
            raise reply
        if reply[0] == b"message":
            found.append({"type": "message", "channel": reply[1], "data": reply[2]})
        else:
            found.append(await pubsub.handle_message(reply))  # type: ignore[no-untyped-call]  # as above
        reply = await connection.buffered()
    return found


class TlsConnection(FleetConnection, SSLConnection):
    """Over TLS."""

    async def _connect(self) -> None:
        """Connect, and wait for the server's verdict on our certificate, which comes after the handshake."""
        await super()._connect()  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
        try:
            await self._verdict()
        except BaseException:
            # redis-py would take it for connected from now on, though nobody has greeted the server.
            await self.disconnect(nowait=True)
            raise

    async def _verdict(self) -> None:
        """A server that refuses resets the connection: what is written by then fails of that, and not of its word."""
        await asyncio.sleep(VERDICT_S)
        if self._reader is not None and (verdict := self._reader.exception()):
            raise verdict


class ToPrimary(FleetConnection):
    """A connection to whoever is the primary when it connects."""

    def __init__(self, *, sentinels: Sentinels, **kwargs: Any) -> None:  # noqa: ANN401 - redis-py's own options
        """Connect to nobody yet."""
        super().__init__(**kwargs)
        self._sentinels = sentinels

    async def _connect(self) -> None:
        self.host, self.port = await self._sentinels.primary()
        await super()._connect()  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here


class SyncFleetConnection(SyncConnection):
    """As `FleetConnection`, for threads."""

    def read_response(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - redis-py's own signature
        """As `FleetConnection.read_response`."""
        try:
            return super().read_response(*args, **kwargs)  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
        except ReadOnlyError:
            self.disconnect()  # type: ignore[no-untyped-call]  # as above
            raise


class SyncToPrimary(SyncFleetConnection):
    """As `ToPrimary`, for threads."""

    def __init__(self, *, sentinels: Sentinels, **kwargs: Any) -> None:  # noqa: ANN401 - redis-py's own options
        """Connect to nobody yet."""
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
        self._sentinels = sentinels

    def _connect(self) -> Any:  # noqa: ANN401 - a socket, which redis-py does not type
        self.host, self.port = self._sentinels.primary_sync()
        return super()._connect()  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here


def fails_over(redis: Redis) -> bool:
    """Whether this client asks sentinels for its server: then another may take its place at any time."""
    return issubclass(redis.connection_pool.connection_class, ToPrimary)
