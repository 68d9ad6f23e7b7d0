"""A fleet with the simulated engine for all tests of the gateway, and a worker that does what a test tells it."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI
from redis.asyncio import Redis

from producer.batch.store import FileStore
from tests.access.certificates import Certificates
from tests.gateway.batching import GRANTS
from tests.gateway.serving import MODEL, Ring, Served, serving
from tests.producer.tiny import TinyWorker
from tests.tokenfleet.running import up


@pytest.fixture(scope="session")
def sim_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Redis of a fleet with two workers."""
    with up(tmp_path_factory.mktemp("fleet"), "--model", MODEL, "--slots", "32") as running:
        yield running.said["redis_url"]


@pytest.fixture
async def sim(sim_url: str) -> AsyncIterator[Served]:
    """A gateway in front of that fleet."""
    async with serving(sim_url) as served:
        yield served


@pytest.fixture
async def worker(valkey: Redis) -> TinyWorker:
    """The only worker of a fleet; it takes what the test tells it to."""
    tiny = TinyWorker(valkey)
    await tiny.join()
    return tiny


@pytest.fixture
async def front(valkey_url: str, worker: TinyWorker, tmp_path: Path) -> AsyncIterator[Served]:
    """A gateway in front of that worker, with a store for files."""
    del worker
    (tmp_path / "store").mkdir()
    async with serving(valkey_url, store=tmp_path / "store") as served:
        yield served


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    (tmp_path / "store").mkdir(exist_ok=True)
    return FileStore(tmp_path / "store")


@pytest.fixture
async def stored(sim_url: str, store: FileStore) -> AsyncIterator[Served]:
    """A gateway with a store, in front of a fleet."""
    async with serving(sim_url, ring=Ring(GRANTS), store=store.folder) as served:
        yield served


@pytest.fixture
async def sdk(stored: Served) -> AsyncIterator[AsyncOpenAI]:
    async with stored.sdk("ours") as client:
        yield client


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on the path")
    made = Certificates(tmp_path)
    made.make("good")
    made.make("other")
    return made
