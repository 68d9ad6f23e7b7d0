"""Whose trace a job carries: the caller's span, a request's header, or none."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer
from redis.asyncio import Redis

from producer.fleet import Fleet
from producer.jobs import Job
from producer.requests import JobRequest
from producer.sync import SyncFleet
from protocol.errors import InvalidRequest
from protocol.messages import JobSpec
from tests.gateway.serving import CHAT, serving, taken
from tests.producer.tiny import MODEL, TinyWorker

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = CALLER[:-1] + "0"
NONE = [
    "",
    "nonsense",
    CALLER.upper(),
    CALLER + "\n",
    CALLER + "-more",
    "ff" + CALLER[2:],
    "00-" + "0" * 32 + CALLER[35:],
    CALLER[:36] + "0" * 16 + "-01",
    CALLER * 1_000,
    "\x00",
]


@pytest.fixture
def program() -> Iterator[Tracer]:
    provider = TracerProvider()
    yield provider.get_tracer("program")
    provider.shutdown()


@pytest.fixture
async def worker(valkey: Redis) -> TinyWorker:
    tiny = TinyWorker(valkey)
    await tiny.join()
    return tiny


async def carried(job: Job) -> str:
    return (await job.info()).record.spec.trace


@pytest.mark.parametrize("value", [*NONE, None, 7, [CALLER], {"a": 1}, True], ids=repr)
def test_what_is_no_trace_in_redis_reads_as_none(value: object) -> None:
    spec = {"model": "m", "endpoint": "/v1/completions", "trace": value}
    assert JobSpec.model_validate(spec).trace == ""
    assert JobSpec.model_validate(spec | {"trace": CALLER}).trace == CALLER


async def test_the_callers_span_goes_along_and_nothing_without_one(
    valkey_url: str, worker: TinyWorker, program: Tracer
) -> None:
    async with Fleet(valkey_url) as fleet:
        with program.start_as_current_span("request") as span:
            with_one = await fleet.submit(model=MODEL, prompt="a")
            ids = span.get_span_context()
        without = await fleet.submit(model=MODEL, prompt="b")
        assert (await carried(with_one)).startswith(f"00-{ids.trace_id:032x}-{ids.span_id:016x}-")
        assert await carried(without) == ""
        for job in (with_one, without):
            await job.cancel()


async def test_a_request_may_name_another_span_or_none(valkey_url: str, worker: TinyWorker, program: Tracer) -> None:
    async with Fleet(valkey_url) as fleet:
        with program.start_as_current_span("request"):
            requests = [JobRequest(model=MODEL, prompt="a", trace=trace) for trace in (CALLER, UNSAMPLED, "")]
            jobs = [job for job in await fleet.submit_many(requests) if isinstance(job, Job)]
            (wrong,) = await fleet.submit_many([JobRequest(model=MODEL, prompt="a", trace="nonsense")])
        assert [await carried(job) for job in jobs] == [CALLER, UNSAMPLED, ""]
        assert isinstance(wrong, InvalidRequest)
        for job in jobs:
            await job.cancel()


def test_a_program_without_an_event_loop_traces_too(valkey_url: str, program: Tracer, worker: TinyWorker) -> None:
    with SyncFleet(valkey_url) as fleet:
        with program.start_as_current_span("request") as span:
            job = fleet.submit(model=MODEL, prompt="a")
        assert f"{span.get_span_context().span_id:016x}" in fleet.job(job.handle).record.spec.trace
        fleet.cancel(job.handle)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (CALLER, CALLER),
        (UNSAMPLED, UNSAMPLED),
        # A later version of the form begins as this one does.
        (f"01{CALLER[2:]}-more", CALLER),
        ("", ""),
        ("nonsense", ""),
        (CALLER[:36] + "0" * 16 + "-01", ""),
        ("x" * 20_000, ""),
    ],
    ids=lambda value: value[:60],
)
async def test_the_gateway_takes_a_requests_header(
    valkey_url: str, worker: TinyWorker, header: str, expected: str
) -> None:
    headers = {"traceparent": header}
    async with (
        serving(valkey_url) as served,
        served.http() as http,
        http.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}, headers=headers) as answer,
    ):
        attempt = await taken(worker)
        await attempt.finish("well")
        assert answer.status_code == 200
    assert attempt.started.spec.trace == expected


async def test_a_gateway_that_exports_begins_no_trace_by_itself(
    valkey_url: str, worker: TinyWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    async with (
        serving(valkey_url) as served,
        served.http() as http,
        http.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as answer,
    ):
        attempt = await taken(worker)
        await attempt.finish("well")
        assert answer.status_code == 200
    assert attempt.started.spec.trace == ""
    assert exporter.get_finished_spans() == ()
