"""What needs a GPU: the device's figures, and how soon a standby worker's first token comes.

Run with `pytest -m gpu`; docs/operators.md says what it takes.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from producer.events import Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from producer.workers import command_worker
from protocol.messages import LoadReport, WorkerRecord
from protocol.states import State
from tests.gpu.conftest import LABEL, MODEL, START_S, GpuFleet
from tests.support.waiting import eventually
from worker.device import device_count

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not device_count(), reason="NVML sees no NVIDIA device")]

WARM_S, ASLEEP_S = 1.0, 5.0
"""From a promotion to the first token of a job that waits."""


@pytest.fixture
async def fleet(gpu_fleet: GpuFleet) -> AsyncIterator[Fleet]:
    async with gpu_fleet.connect() as client:
        yield client


@pytest.fixture
async def warm(gpu_fleet: GpuFleet, fleet: Fleet) -> WorkerRecord:
    """The worker with its model loaded, standing by: as it came up, or out of its sleep."""
    states = {worker.state for shard in (await fleet.status()).shards for worker in shard.workers}
    if "active" in states:
        await command_worker(fleet.redis, LABEL, "sleep", timeout_s=START_S)
        states = {"asleep"}
    if "asleep" in states:
        await command_worker(fleet.redis, LABEL, "wake", timeout_s=START_S)
    return await gpu_fleet.worker(fleet, "warm")


async def first_token_s(fleet: Fleet) -> float:
    """Seconds from promoting the worker to the first token of a job that waits for it."""
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    job = await fleet.submit(model=MODEL, messages=chat, stream=True, max_tokens=16)
    first = asyncio.create_task(_first_token(job))
    clock = asyncio.get_running_loop().time
    promoted_s = clock()
    await command_worker(fleet.redis, LABEL, "promote", timeout_s=START_S)
    async with asyncio.timeout(START_S):
        await first
    seconds = clock() - promoted_s
    assert (await job.result(START_S)).state is State.COMPLETED
    return seconds


async def _first_token(job: Job) -> None:
    async for event in job.follow():
        if isinstance(event, Tokens) and event.text:
            return


async def test_the_report_has_the_devices_figures(gpu_fleet: GpuFleet, fleet: Fleet, warm: WorkerRecord) -> None:
    report = warm.report
    assert report.device_utilisation is not None
    assert 0 < (report.device_temperature_c or 0) < 120
    assert 0 < report.memory <= 1
    assert report.kv_total_tokens > 0
    assert report.block_tokens > 0
    assert MODEL in warm.models


async def test_a_warm_worker_answers_within_a_second(fleet: Fleet, warm: WorkerRecord) -> None:
    assert await first_token_s(fleet) < WARM_S


async def test_a_sleeping_worker_answers_within_five_seconds(
    gpu_fleet: GpuFleet, fleet: Fleet, warm: WorkerRecord
) -> None:
    await command_worker(fleet.redis, LABEL, "sleep", timeout_s=START_S)

    async def freed() -> LoadReport | None:
        report = (await gpu_fleet.worker(fleet, "asleep")).report
        return report if report.memory < warm.report.memory else None

    assert await eventually(freed, timeout_s=30)
    assert await first_token_s(fleet) < ASLEEP_S
