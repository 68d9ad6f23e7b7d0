"""One suite for fakeredis and real servers; after every test that used a Redis nothing may be left behind."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import fakeredis
import pytest
import redis as redis_py
import structlog
from redis.asyncio import Redis

from protocol import library, store
from tests.support import snapshot
from tests.support.driver import Driver
from tests.support.servers import REQUIRE_REDIS7, Server, redis7_binary, redis7_is_required, valkey_binary
from tests.support.store_clock import AgingClock, FakeStoreClock, StoreClock

REAL = ("valkey", "redis7")


@dataclass(frozen=True)
class Backend:
    """One empty Redis with the library loaded: fakeredis, or a real server (then `url` is set)."""

    name: str
    sync: redis_py.Redis
    fake: fakeredis.FakeServer | None = None
    url: str = ""

    def connect(self) -> Redis:
        """An asyncio client; close it."""
        return fakeredis.FakeAsyncRedis(server=self.fake) if self.fake else store.connect(self.url)


@pytest.fixture(autouse=True, scope="session")
def _loggers_are_not_cached() -> Iterator[None]:
    """A logger that one test configured must not keep its level in the next."""
    configure = structlog.configure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", lambda **how: configure(**how | {"cache_logger_on_first_use": False}))
        yield


@pytest.fixture(autouse=True)
def _logging_begins_anew() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _running(valkey_binary(), tmp_path_factory.mktemp("valkey"))


@pytest.fixture(scope="session")
def redis7_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    binary = redis7_binary()
    if binary is None and redis7_is_required():
        pytest.fail(f"{REQUIRE_REDIS7} is set, but there is no redis-server of version 7 or above")
    if binary is None:
        pytest.skip("no redis-server of version 7 or above on the path")
    yield from _running(binary, tmp_path_factory.mktemp("redis7"))


def _running(binary: Path, folder: Path) -> Iterator[Server]:
    # The state machine has it restart within itself, which takes milliseconds.
    server = Server(binary, folder, extra=("--enable-debug-command", "local"))
    server.start()
    yield server
    server.stop()


def _real(name: str, request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The session's server, emptied before and checked after."""
    server: Server = request.getfixturevalue(f"{name}_server")
    with server.client() as client:
        client.flushall()
        server.load_library()
        yield Backend(name, client, url=server.url)
        _check_leaks(client)


def _check_leaks(client: redis_py.Redis) -> None:
    leaks = snapshot.take(client).leaks()
    assert not leaks, f"keys left without an expiry: {leaks}"


@pytest.fixture(params=["fake", *REAL])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each kind of Redis in turn."""
    if request.param != "fake":
        yield from _real(request.param, request)
        return
    fake = fakeredis.FakeServer()
    with fakeredis.FakeRedis(server=fake) as client:
        client.function_load(library.source(), replace=True)
        yield Backend("fake", client, fake)
        _check_leaks(client)


@pytest.fixture
async def redis(backend: Backend) -> AsyncIterator[Redis]:
    """An asyncio client of each kind of Redis in turn."""
    client = backend.connect()
    yield client
    await client.aclose()


@pytest.fixture
def store_clock(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> StoreClock:
    """Turns the time of the Redis that the test uses."""
    return clock_of(backend, monkeypatch)


def clock_of(backend: Backend, monkeypatch: pytest.MonkeyPatch, *, frozen: bool = False) -> StoreClock:
    """What turns its time; `frozen`: fakeredis's time moves by that only."""
    if backend.fake is None:
        return AgingClock(backend.sync)
    clock = FakeStoreClock(frozen=frozen)
    clock.install(monkeypatch)
    return clock


@pytest.fixture(params=REAL)
def real_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each kind of real server in turn, for what fakeredis does not have: ACLs, memory limits, other processes."""
    yield from _real(request.param, request)


@pytest.fixture
def redis_url(real_backend: Backend) -> str:
    """Where each kind of real server in turn listens."""
    return real_backend.url


@pytest.fixture
def valkey_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """One real server, for tests that gain nothing from a second kind."""
    for real in _real("valkey", request):
        yield real.url


@pytest.fixture
async def valkey(valkey_url: str) -> AsyncIterator[Redis]:
    """An asyncio client of `valkey_url`."""
    client = store.connect(valkey_url)
    yield client
    await client.aclose()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A Valkey of the test's own, with the library and an append-only file: to kill, pause and restart."""
    own = Server(valkey_binary(), tmp_path, append_only=True)
    own.start()
    own.load_library()
    yield own
    own.stop()


@pytest.fixture
def driver(backend: Backend) -> Iterator[Driver]:
    """Drives the functions on each kind of Redis in turn; the invariant must hold at the end."""
    fleet = Driver(backend.sync)
    yield fleet
    fleet.check()


@pytest.fixture
def real_driver(real_backend: Backend) -> Iterator[Driver]:
    """As `driver`, on real servers only."""
    fleet = Driver(real_backend.sync)
    yield fleet
    fleet.check()
