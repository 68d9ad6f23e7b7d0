"""A job's trace, over real processes: the caller's span, and under it each hop's."""

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.trace import Span, Tracer

from producer.jobs import Job
from protocol import keys
from protocol.call import Call, run
from protocol.messages import JobRecord, JobSpec
from protocol.states import State
from protocol.wire import loads
from tests.faults.stage import Stage
from tests.gateway.serving import CHAT
from tests.observe.collector import Collector, Told
from tests.support.waiting import eventually
from tests.worker.engine.vllm.stand_in import HELLO, StandIn

WAIT_S = 0.005
"""How far a wait may be from the job's record."""
HOPS = ("submit", "queue", "assign", "inbox", "engine", "finish")


async def crew(stage: Stage, collector: Collector, workers: int = 1, *engine: str) -> None:
    """A scheduler and workers that trace."""
    stage.scheduler(env=collector.env)
    for number in range(workers):
        stage.worker_on(engine or ("--engine", "sim"), f"w{number + 1}", env=collector.env)
    await stage.active(workers)


async def traced(stage: Stage, caller: Tracer, **how: Any) -> tuple[Job, Span]:
    with caller.start_as_current_span("request") as span:
        return await stage.submit(**how), span


def trace_of(span: Span) -> str:
    return f"{span.get_span_context().trace_id:032x}"


async def spans(collector: Collector, span: Span, count: int) -> list[Told]:
    """The job's own ones, all of which must come."""
    trace = trace_of(span)
    await eventually(lambda: len(collector.named(trace, *HOPS)) >= count, 10)
    return collector.named(trace, *HOPS)


def close(told: Told, begin_ms: int, end_ms: int) -> bool:
    return abs(told.begin_s - begin_ms / 1000) <= WAIT_S and abs(told.end_s - end_ms / 1000) <= WAIT_S


async def record_of(job: Job) -> JobRecord:
    return (await job.info()).record


async def test_a_streamed_job_is_seen_from_its_caller_to_its_end(
    stage: Stage, collector: Collector, caller: Tracer
) -> None:
    await crew(stage, collector)
    job, parent = await traced(stage, caller, words=20)
    assert (await job.result(timeout=20)).state is State.COMPLETED
    told = {span.name: span for span in await spans(collector, parent, len(HOPS))}
    record = await record_of(job)

    assert sorted(told) == sorted(HOPS)
    begins = [told[name].begin_s for name in HOPS]
    # Redis tells whole milliseconds, and two clocks are read.
    assert all(after >= before - 0.002 for before, after in pairwise(begins)), begins
    assert {span.parent for span in told.values()} == {f"{parent.get_span_context().span_id:016x}"}
    services = [told[name].service for name in HOPS]
    assert services == ["caller", "tokenfleet-worker", "tokenfleet-scheduler", *["tokenfleet-worker"] * 3]
    assert all(span.about["tokenfleet.job"] == str(job.handle) and not span.error for span in told.values())

    assert close(told["queue"], record.submitted_ms, record.assigned_ms)
    assert close(told["inbox"], record.assigned_ms, record.started_ms)
    assert abs(told["engine"].begin_s - record.started_ms / 1000) <= WAIT_S
    assert abs(told["engine"].events["first_token"] - record.first_token_ms / 1000) <= WAIT_S
    assert told["engine"].end_s == told["finish"].begin_s
    assert abs(told["finish"].end_s - record.finished_ms / 1000) <= WAIT_S
    # What is counted by other clocks fits to Redis's.
    assert told["submit"].begin_s <= told["queue"].begin_s + WAIT_S
    assert told["queue"].begin_s - WAIT_S <= told["assign"].begin_s <= record.assigned_ms / 1000 + WAIT_S
    assert told["assign"].begin_s < told["assign"].end_s <= told["finish"].end_s


class Failing:
    """Fails its first requests; keeps the header of each."""

    def __init__(self, failures: int) -> None:
        self.left, self.headers = failures, list[str]()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers.get("traceparent", ""))
        self.left -= 1
        return web.json_response({"error": {}}, status=500) if self.left >= 0 else await HELLO(request)


@pytest.fixture
async def behind(stage: Stage) -> Callable[[Failing], Awaitable[str]]:
    """The address of a server that plays an engine."""

    async def serve(play: Failing) -> str:
        runner = web.AppRunner(StandIn(play=play).app(), shutdown_timeout=0.1)
        await runner.setup()
        stage.closing(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    return serve


async def test_each_attempt_is_seen_and_the_engine_can_join(
    stage: Stage, collector: Collector, caller: Tracer, behind: Callable[[Failing], Awaitable[str]]
) -> None:
    play = Failing(1)
    await crew(stage, collector, 1, "--engine", "openai", "--attach", await behind(play))
    job, parent = await traced(stage, caller, prompt=None, messages=CHAT["messages"])
    assert (await job.result(timeout=20)).state is State.COMPLETED
    told = await spans(collector, parent, 10)
    record = await record_of(job)
    assert sorted(span.name for span in told) == sorted(
        ["submit", *2 * ["queue", "assign", "inbox", "engine"], "finish"]
    )

    first, second = (span for span in told if span.name == "engine")
    assert (first.error, second.error) == ("engine_failed", "")
    assert first.about["tokenfleet.attempt"] < second.about["tokenfleet.attempt"] == record.attempt
    assert first.end_s <= second.begin_s
    _, again = (span for span in told if span.name == "queue")
    # The second wait begins when the first attempt was given back.
    assert close(again, record.history[0].at_ms, record.assigned_ms)
    # So does the worker's log, on every line of the attempt.
    lines = stage.roles[1].log.read_text().splitlines()
    (failed,) = [line for line in map(loads, lines) if line["event"] == "attempt_failed"]
    assert (failed["job"], failed["attempt"]) == (str(job.handle), first.about["tokenfleet.attempt"])
    # Each request names the attempt's span: what the engine itself tells stands under it.
    assert [header[:53] for header in play.headers] == [f"00-{span.trace}-{span.id}-" for span in (first, second)]


async def test_an_attempt_whose_worker_was_lost_is_told_by_the_next(
    stage: Stage, collector: Collector, caller: Tracer
) -> None:
    await crew(stage, collector)
    job, parent = await traced(stage, caller)
    record = await stage.running(job)
    stage.roles[1].kill()
    stage.worker("w2", env=collector.env)
    assert (await job.result(timeout=30)).state is State.COMPLETED
    await eventually(lambda: len(collector.named(trace_of(parent), "engine")) == 2, 10)
    lost, whole = collector.named(trace_of(parent), "engine")
    given_back = (await record_of(job)).history[0]
    assert (lost.error, lost.about["tokenfleet.attempt"]) == ("worker_lost", given_back.attempt)
    assert close(lost, record.started_ms, given_back.at_ms)
    assert whole.error == ""
    (finish,) = collector.named(trace_of(parent), "finish")
    assert finish.about["tokenfleet.attempt"] == whole.about["tokenfleet.attempt"]


async def test_a_job_that_is_cancelled_ends_its_span(stage: Stage, collector: Collector, caller: Tracer) -> None:
    await crew(stage, collector)
    job, parent = await traced(stage, caller, words=2000)
    await stage.running(job)
    await job.cancel()
    await eventually(lambda: collector.named(trace_of(parent), "engine"), 10)
    (engine,) = collector.named(trace_of(parent), "engine")
    assert engine.error == "dropped"
    assert not collector.named(trace_of(parent), "finish")


async def test_nothing_is_told_of_a_job_without_a_trace_or_with_one_that_is_none(
    stage: Stage, collector: Collector, caller: Tracer
) -> None:
    await crew(stage, collector)
    plain = await stage.submit(words=2)
    job, parent = await traced(stage, caller, words=2, delay=0.3)
    # A hand writes over one of them.
    key = keys.job(job.handle)
    spec = JobSpec.model_validate_json(await run(stage.fleet.redis, Call(("HGET", key, "spec"), bytes)))
    text = spec.model_dump_json().replace(spec.trace, "\\u0000" + "x" * 5_000)
    await run(stage.fleet.redis, Call(("HSET", key, "spec", text), int))
    for each in (plain, job):
        assert (await each.result(timeout=20)).state is State.COMPLETED
    marked, after = await traced(stage, caller, words=2)
    await marked.result(timeout=20)
    await spans(collector, after, len(HOPS))
    assert [span.name for span in collector.named(trace_of(parent), *HOPS)] == ["submit"]
    assert not [span for span in collector.spans if span.about.get("tokenfleet.job") == str(plain.handle)]
