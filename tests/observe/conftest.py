"""What is watched: a fleet of real processes that are scraped, and a collector that processes export their spans to."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from producer.fleet import Fleet
from protocol.settings import Settings
from telemetry import tracing
from tests.faults.stage import Stage
from tests.observe.collector import Collector, collecting
from tests.observe.scraping import Scrape
from tests.support.nursery import Nursery
from tests.support.servers import Server, free_port, valkey_binary
from tests.support.waiting import eventually

MODEL = "demo"
LEASE_S = 5


@dataclass
class Watched:
    """The processes by name, and where each answers Prometheus."""

    nursery: Nursery
    server: Server
    folder: Path
    fleet: Fleet
    pids: dict[str, int]
    ports: dict[str, int]
    asked: set[str] = field(default_factory=set)
    """The metrics that the test has compared with something."""

    def start(self, name: str, *words: str, option: str = "--metrics-port", **more: str) -> None:
        port = self.ports[name] = free_port()
        env = {"TOKENFLEET_REDIS_URL": self.server.url, "TOKENFLEET_STORE": str(self.folder / "store")}
        env |= {"TOKENFLEET_LEASE_S": str(LEASE_S), "TOKENFLEET_LOG_FORMAT": "json"}
        args = [*words, option, str(port)]
        self.pids[name] = self.nursery.fork(args, env | more, self.folder / f"{name}.log")

    def worker(self, name: str) -> None:
        self.start(name, "worker", "--engine", "sim", "--model", MODEL, "--label", name, "--slots", "8")

    def scrape(self, name: str) -> Scrape:
        return Scrape(self.ports[name], self.asked)

    def kill(self, name: str) -> None:
        os.kill(self.pids.pop(name), signal.SIGKILL)

    async def answers(self, name: str) -> None:
        def listens() -> bool:
            try:
                return bool(self.scrape(name))
            except OSError as error:
                log = self.folder / f"{name}.log"
                raise AssertionError(log.read_text() if log.exists() else "not begun") from error

        await eventually(listens, timeout_s=60)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as parent:
        yield parent


@pytest.fixture
async def bare(nursery: Nursery, tmp_path: Path) -> AsyncIterator[Watched]:
    """A server, and no role yet."""
    server = Server(valkey_binary(), tmp_path)
    server.start()
    (tmp_path / "store").mkdir()
    settings = Settings(redis_url=server.url, store=tmp_path / "store", redis_patience_s=20)
    try:
        async with Fleet(settings=settings) as fleet:
            watched = Watched(nursery, server, tmp_path, fleet, {}, {})
            try:
                yield watched
            finally:
                for name in list(watched.pids):
                    watched.kill(name)
    finally:
        server.stop()


@pytest.fixture
async def watched(bare: Watched) -> Watched:
    """With one or two of each role."""
    bare.start("scheduler", "scheduler")
    bare.worker("w1")
    bare.worker("w2")
    bare.start("runner", "batch-runner")
    bare.start("gateway", "gateway", "--open", option="--port")
    await bare.fleet.ready(MODEL, timeout=60)
    for name in bare.ports:
        await bare.answers(name)
    return bare


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture
async def stage(nursery: Nursery, tmp_path: Path) -> AsyncIterator[Stage]:
    async with Stage(nursery, tmp_path) as found:
        yield found


@pytest.fixture
def caller(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracer]:
    """A user's program that traces, and submits in this process."""
    monkeypatch.setenv("NO_PROXY", "*")
    provider = TracerProvider(resource=Resource.create({"service.name": "caller"}))
    exporter = OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=50))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("producer"))
    yield provider.get_tracer("program")
    provider.shutdown()
