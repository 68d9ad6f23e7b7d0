"""A fleet client and a tiny worker on each kind of Redis."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from producer.batch.store import FileStore
from producer.fleet import Fleet
from protocol.settings import Settings
from tests.producer.tiny import TinyWorker


@pytest.fixture
async def fleet(redis: Redis) -> AsyncIterator[Fleet]:
    async with Fleet(redis=redis, tenant="t", settings=Settings(redis_patience_s=5)) as client:
        yield client


@pytest.fixture
async def worker(redis: Redis) -> TinyWorker:
    """Joined; it serves when it is told to."""
    tiny = TinyWorker(redis)
    await tiny.join()
    return tiny


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A batch's input and output."""
    return tmp_path / "in.jsonl", tmp_path / "out.jsonl"


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """The files of batches."""
    (tmp_path / "store").mkdir()
    return FileStore(tmp_path / "store")


@pytest.fixture
async def stored(redis: Redis, store: FileStore) -> AsyncIterator[Fleet]:
    """As `fleet`, with the store."""
    async with Fleet(redis=redis, tenant="t", settings=Settings(redis_patience_s=5, store=store.folder)) as client:
        yield client


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A batch's input."""
    return tmp_path / "in.jsonl"
