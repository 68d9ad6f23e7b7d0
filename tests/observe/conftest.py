"""One parent for all processes, and a collector that they export to."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from telemetry import tracing
from tests.faults.stage import Stage
from tests.observe.collector import Collector, collecting
from tests.support.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as parent:
        yield parent


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
