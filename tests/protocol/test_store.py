"""Connections: what is shown of them, and what happens while Redis is away."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import ReadOnlyError, ResponseError

from producer.hub import SPREAD_S
from protocol import store
from protocol.call import FIRST_PAUSE_S, LONGEST_PAUSE_S, Call, patiently, run, run_all, run_sync, spread_s, translate
from protocol.errors import NotAllowed, ProtocolViolation, SetupError, StoreFull, StoreUnavailable, WrongType
from protocol.primary import sentinels_of
from tests.support.servers import Server, free_port, valkey_binary
from tests.support.waiting import eventually

PING = Call(("PING",), bool)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:6379/0", "redis://host:6379/0"),
        ("redis://:se@cret@host/1?password=secret", "redis://host/1"),
        ("rediss://host:6380/2#secret", "rediss://host:6380/2"),
        ("unix:///run/redis.sock?password=secret", "unix:///run/redis.sock"),
        ("redis://user:secret@[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis+sentinel://u:secret@a:1,b/fleet/0?sentinel_password=secret", "redis+sentinel://a:1,b/fleet/0"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert store.redacted(url) == shown


def test_a_url_that_cant_be_shown_is_refused_without_its_secrets() -> None:
    with pytest.raises(SetupError, match="malformed Redis URL") as told:
        store.redacted("redis://user:secret@[::1")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@host",
        "host:6379",
        "redis://user:secret/more@host",
        "redis+sentinel://user:secret@host",
        "redis+sentinel://user:secret@host/fleet/first",
        "redis+sentinel://user:secret@host:port/fleet",
        "redis+sentinel://user:secret@/fleet",
        "redis+sentinel://user:secret@host,/fleet",
    ],
)
def test_a_malformed_url_is_refused_without_its_secrets(url: str) -> None:
    for connect in (store.connect, store.connect_sync):
        with pytest.raises(SetupError, match="malformed Redis URL") as told:
            connect(url)
        assert "secret" not in str(told.value)


def test_a_sentinel_url_names_its_sentinels_and_what_they_watch() -> None:
    url = "redis+sentinel://u:p%40w@a:1,b/fleet/3?sentinel_password=own&client_name=me"
    found = sentinels_of(url)
    assert found
    sentinels, options = found
    assert (sentinels.addresses, sentinels.service) == ((("a", 1), ("b", 26379)), "fleet")
    assert (sentinels.options["password"], sentinels.options["username"]) == ("own", None)
    assert options == {"username": "u", "password": "p@w", "db": 3, "client_name": "me"}
    assert sentinels_of("redis://host/1") is None


async def test_a_connection_that_was_closed_meanwhile_is_a_redis_that_is_away(valkey_url: str) -> None:
    """uvloop has an error of its own for a write on one, which redis-py lets through."""

    async def write_on_a_closed_one() -> None:
        redis = store.connect(valkey_url)
        connection = await redis.connection_pool.get_connection()
        connection._writer.transport.abort()
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(NoConnection):
            await connection.send_command("PING", check_health=False)
        await redis.aclose()

    await asyncio.to_thread(uvloop.run, write_on_a_closed_one())


async def test_a_command_goes_out_without_a_turn_of_the_event_loop(valkey_url: str) -> None:
    """Each turn is one of all that is ready: while a hundred tokens come, a command that takes six is late."""

    async def ask() -> None:
        redis = store.connect(valkey_url)
        assert await run(redis, PING)
        taking = redis.connection_pool.get_connection()
        with pytest.raises(StopIteration) as taken:
            taking.send(None)
        connection = taken.value.value
        with pytest.raises(StopIteration):
            connection.send_command("PING").send(None)
        assert await connection.read_response() == b"PONG"
        await redis.connection_pool.release(connection)
        await redis.aclose()

    await asyncio.to_thread(uvloop.run, ask())


async def test_what_the_socket_has_no_room_for_is_waited_for(valkey_url: str) -> None:
    async with store.connect(valkey_url) as redis:
        large = b"x" * 32 * 1024 * 1024
        assert await run(redis, Call(("ECHO", large), bytes)) == large


@pytest.mark.parametrize("leaves", [("ECHO", "left"), ("QUIT",)])
async def test_a_connection_that_something_is_left_on_serves_nobody(valkey_url: str, leaves: tuple[str, ...]) -> None:
    """A reply that nobody waited for, or the end, would be the next one's answer."""
    async with store.connect(valkey_url) as redis:
        connection = await redis.connection_pool.get_connection()
        stream = connection._reader
        await connection.send_command(*leaves)
        await eventually(lambda: bool(stream._buffer))
        await redis.connection_pool.release(connection)
        assert await run(redis, Call(("ECHO", "mine"), bytes)) == b"mine"


def test_tls_goes_to_the_sentinels_too() -> None:
    found = sentinels_of("rediss+sentinel://host/fleet?ssl_ca_certs=ca.pem")
    assert found
    assert found[0].tls
    assert found[0].options["ssl_ca_certs"] == "ca.pem"
    for client in (store.connect("rediss+sentinel://host/fleet"), store.connect_sync("rediss+sentinel://host/fleet")):
        assert "Tls" in client.connection_pool.connection_class.__name__


@pytest.mark.parametrize("connect", [store.connect, store.connect_sync])
def test_certificates_are_checked_behind_sentinel_too(connect: Callable[[str], Any]) -> None:
    pool = connect("rediss+sentinel://u:p@a:1,b/fleet/2?client_name=me&sentinel_password=own").connection_pool
    sentinels = pool.connection_kwargs["sentinels"]
    for options in (pool.connection_kwargs, sentinels.options):
        assert (options["ssl_cert_reqs"], options["ssl_check_hostname"]) == ("required", True)
    assert (sentinels.options["password"], sentinels.addresses) == ("own", (("a", 1), ("b", 26379)))
    assert [pool.connection_kwargs[name] for name in ("client_name", "db", "username")] == ["me", 2, "u"]
    with pytest.raises(SetupError, match="may not say ssl_cert_reqs"):
        connect("rediss+sentinel://a/fleet?ssl_cert_reqs=none")


async def test_waiting_until_redis_is_up(server: Server) -> None:
    server.kill()
    redis, waits = store.connect(server.url), 0

    def on_wait() -> None:
        nonlocal waits
        waits += 1
        server.start()

    await store.wait_until_up(redis, 20, on_wait)
    await store.wait_until_up(redis, 0, on_wait)
    await redis.aclose()
    assert waits == 1


async def test_waiting_has_an_end() -> None:
    redis = store.connect(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(StoreUnavailable, match="Redis does not answer"):
        await store.wait_until_up(redis, 0.01, lambda: None)
    await redis.aclose()


async def test_a_patient_call_outlives_a_restart(server: Server) -> None:
    redis = store.connect(server.url)
    assert await run(redis, PING)
    server.kill()
    with pytest.raises(StoreUnavailable):
        await run_all(redis, [PING, PING])
    with pytest.raises(StoreUnavailable):
        await patiently(lambda: run(redis, PING), 0.06)
    patient = asyncio.ensure_future(patiently(lambda: run(redis, PING), 20))
    await asyncio.to_thread(server.start)
    await eventually(patient.done)
    assert patient.result()
    await redis.aclose()


def test_a_connection_that_is_reset_before_a_write_is_an_outage_on_uvloop_too(valkey_url: str) -> None:
    async def ask() -> None:
        async with store.connect(valkey_url) as redis, redis.client() as single:
            await run(single, PING)
            connection = single.connection
            assert connection is not None
            assert connection._writer is not None
            connection._writer.transport.abort()
            await asyncio.sleep(0)
            with pytest.raises(StoreUnavailable):
                await run(single, PING)
            assert await run(single, PING)

    uvloop.run(ask())


def test_a_missing_right_is_no_outage(valkey_url: str) -> None:
    with store.connect_sync(valkey_url.replace("//", "//nobody:wrong@")) as redis, pytest.raises(NotAllowed):
        run_sync(redis, PING)


@pytest.mark.parametrize("pause_s", [FIRST_PAUSE_S, LONGEST_PAUSE_S])
def test_a_hundred_clients_come_back_spread_over_time(pause_s: float) -> None:
    """Callers and followers: the middle eight tenths of them come over at least half of the time that they have."""
    for over_s in (0.0, SPREAD_S):
        back = sorted(spread_s(pause_s, over_s) for _ in range(100))
        assert pause_s <= back[0] <= back[-1] <= 2 * pause_s + over_s
        assert back[-10] - back[10] >= (pause_s + over_s) / 2


async def test_pauses_grow_while_redis_is_away() -> None:
    """Six attempts in the time that equal pauses would take for thirty."""
    attempts = 0

    async def fail() -> None:
        nonlocal attempts
        attempts += 1
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await patiently(fail, 30 * FIRST_PAUSE_S)
    assert 3 <= attempts <= 6


def test_a_full_disk_is_a_full_store() -> None:
    assert isinstance(translate(ResponseError("MISCONF Errors writing to the AOF file: No space left")), StoreFull)


def test_other_errors_are_told_by_kind() -> None:
    assert isinstance(translate(ReadOnlyError("READONLY")), StoreUnavailable)
    assert isinstance(translate(Exception("WRONGTYPE Operation against a key")), WrongType)
    assert isinstance(translate(Exception("ERR what?")), ProtocolViolation)


async def test_a_kept_connection_that_was_closed_meanwhile_is_not_handed_out(server: Server) -> None:
    redis = store.connect(server.url)
    await run(redis, PING)
    (kept,) = redis.connection_pool._available_connections
    assert await redis.connection_pool.get_connection() is kept
    await redis.connection_pool.release(kept)
    server.kill()
    server.start()
    await eventually(lambda: not kept.silent)
    assert await run(redis, PING)
    await redis.aclose()


async def test_whoever_waits_for_a_connection_gets_it_before_those_that_come_later(server: Server) -> None:
    redis = store.connect(server.url)
    pool, order = redis.connection_pool, []
    pool.max_connections = 1

    async def use(name: str) -> None:
        connection = await pool.get_connection()
        order.append(name)
        await pool.release(connection)

    held = await pool.get_connection()
    first = asyncio.create_task(use("first"))
    await asyncio.sleep(0)
    await pool.release(held)
    await asyncio.gather(use("second"), first)
    assert order == ["first", "second"]
    await redis.aclose()


async def test_a_socket_file_serves_as_well(tmp_path: Path) -> None:
    server = Server(valkey_binary(), tmp_path, extra=("--unixsocket", str(tmp_path / "s")))
    server.start()
    try:
        redis = store.connect(f"unix://{tmp_path / 's'}")
        assert [await run(redis, PING) for _ in range(2)] == [True, True]
        await redis.aclose()
    finally:
        server.stop()
