"""A whole fleet inside the test's own event loop, on each kind of Redis."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import fakeredis
import pytest

from producer.fleet import Fleet
from protocol import store
from protocol.settings import Settings
from scheduler.service import run_scheduler
from tests.conftest import Backend
from worker.engine.options import EngineOptions
from worker.engine.registry import create_engine
from worker.options import WorkerOptions
from worker.service import run_worker
from worker.session import Ending
from worker.stop import StopSignals

MODEL = "demo"
SETTINGS = Settings(beat_s=0.05, tick_s=0.05, redis_patience_s=10, drain_s=10)


@pytest.fixture
def url(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the roles connect to; for fakeredis their connections lead to the fake server."""
    if backend.fake is not None:
        fake = backend.fake
        monkeypatch.setattr(store, "connect", lambda _: fakeredis.FakeAsyncRedis(server=fake))
        monkeypatch.setattr(store, "connect_sync", lambda _: fakeredis.FakeRedis(server=fake))
    return backend.url or "redis://fake"


@asynccontextmanager
async def worker(url: str, label: str) -> AsyncIterator[None]:
    """`tokenfleet worker --model demo --engine sim`; drained at the end."""
    engine = create_engine("sim", EngineOptions(slots=4, speed=20))
    stop = StopSignals()
    options = WorkerOptions(engine=engine, models=(MODEL,), label=label, slots=4)
    running = asyncio.create_task(run_worker(SETTINGS, options, redis_url=url, stop=stop))
    yield
    stop.signal()
    assert await running is Ending.DRAINED


@asynccontextmanager
async def scheduler(url: str) -> AsyncIterator[None]:
    """`tokenfleet scheduler`."""
    running = asyncio.create_task(run_scheduler(SETTINGS, redis_url=url))
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def fleet(url: str) -> AsyncIterator[Fleet]:
    """A client of a fleet with one scheduler and two workers."""
    async with (
        scheduler(url),
        worker(url, "worker-1"),
        worker(url, "worker-2"),
        Fleet(redis=store.connect(url), settings=SETTINGS) as client,
    ):
        await client.ready(MODEL, timeout=20)
        yield client
        await client.redis.aclose()
