"""A busy engine: who goes first, what does not fit, and what is refused."""

import asyncio

import pytest

from bench.vllm_env.models import TINY
from producer.fleet import Fleet
from producer.jobs import Job
from protocol.messages import JobRecord
from protocol.states import State
from tests.support.waiting import eventually
from tests.vllm.conftest import LEFT
from tests.vllm.site import Staff
from tests.vllm.straight import Straight

pytestmark = pytest.mark.vllm

END_S = 60.0


async def long_job(fleet: Fleet, name: str, tokens: int, priority: str = "low") -> Job:
    return await fleet.submit(model=TINY, prompt=name, max_tokens=tokens, ignore_eos=True, priority=priority)


async def ended(job: Job) -> JobRecord:
    outcome = await job.result(END_S)
    assert outcome.state is State.COMPLETED, outcome
    return (await job.info()).record


async def test_a_high_job_starts_before_low_ones_that_came_earlier(fleet: Fleet, tiny_straight: Straight) -> None:
    low = [await long_job(fleet, f"low {number}", 300) for number in range(12)]
    await tiny_straight.works()
    high = await ended(await long_job(fleet, "high", 20, "high"))
    records = [await ended(job) for job in low]
    assert sum(record.first_token_ms > high.first_token_ms for record in records) >= 8


async def test_inside_the_engine_too_a_high_job_passes_others(fleet: Fleet, tiny_straight: Straight) -> None:
    """Another client fills vLLM's own queue, with the priority of `low`."""
    body = {"model": TINY, "prompt": "flood", "max_tokens": 800, "ignore_eos": True, "priority": 2}
    flood = [asyncio.create_task(tiny_straight.ask("/v1/completions", body)) for _ in range(6)]

    async def queues() -> bool:
        return await tiny_straight.metric("num_requests_waiting") >= 3

    await eventually(queues, timeout_s=10)
    await ended(await long_job(fleet, "high", 10, "high"))
    assert sum(not task.done() for task in flood) >= 2
    await asyncio.gather(*flood)


async def test_jobs_that_do_not_fit_together_are_preempted_and_complete(
    fleet: Fleet, tiny: Staff, tiny_straight: Straight
) -> None:
    before = (await tiny.reaches(fleet, "active")).record.report.preemptions
    # Chats: offline work leaves them a place, and so one of these would run alone.
    jobs = [await long_job(fleet, f"long {number}", 2_000, "high") for number in range(4)]
    for job in jobs:
        assert (await job.result(END_S)).usage["completion_tokens"] == 2_000

    async def told() -> bool:
        report = (await tiny.reaches(fleet, "active")).record.report
        counted = await tiny_straight.metric("num_preemptions_total")
        return before < report.preemptions == counted

    assert await eventually(told)


async def test_the_report_has_the_engines_own_figures(fleet: Fleet, tiny: Staff, tiny_straight: Straight) -> None:
    worker = await tiny.reaches(fleet, "active")
    assert set(worker.record.models) == {TINY, LEFT}
    assert worker.record.slots == worker.record.report.capacity == 2, "of the eight that were asked for"
    assert worker.record.report.block_tokens == 128
    assert 0 < worker.record.report.kv_total_tokens <= 24 * 128
    assert 0 < worker.record.report.memory < 1
    job = await long_job(fleet, "figures", 1_000)

    async def seen() -> bool:
        report = (await tiny.reaches(fleet, "active")).record.report
        return report.running == 1 and report.kv_used_tokens > 0

    assert await eventually(seen)
    await ended(job)

    async def counted() -> bool:
        report = (await tiny.reaches(fleet, "active")).record.report
        generated = await tiny_straight.metric("generation_tokens_total")
        return report.running == 0 and report.kv_used_tokens == 0 and report.generated_tokens == generated

    assert await eventually(counted)
