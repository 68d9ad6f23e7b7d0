"""A worker that stands by, two that share the work, adapters that each has for itself, and a worker that drains."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.vllm_env.models import ADAPTER, TINY
from producer.events import Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from producer.workers import command_worker
from protocol.states import State
from tests.support.waiting import eventually
from tests.vllm.conftest import LEFT
from tests.vllm.roles import DUMMY, gone
from tests.vllm.site import Plan, Site, Staff

pytestmark = pytest.mark.vllm

RIGHT, LABEL = "right", "tiny-2"
END_S = 90.0
FIRST_TOKEN_S = 1.0


@pytest.fixture(scope="module")
def standby(site: Site, tiny_folder: Path) -> Iterator[Staff]:
    """A second worker for the tiny model, with an adapter of its own."""
    adapter = ["--enable-lora", "--lora-modules", f"{RIGHT}={tiny_folder / ADAPTER}"]
    flags = [*DUMMY, "--max-num-seqs", "8", "--max-model-len", "2560", *adapter]
    with site.worker(Plan(LABEL, TINY, tiny_folder, 1, ["--standby"], flags, state="warm")) as worker:
        yield worker


@pytest.fixture
async def promoted(site: Site, fleet: Fleet, standby: Staff) -> Staff:
    placed = await standby.find(fleet)
    if placed and placed.record.state == "warm":
        assert (await tell(site, "promote"))[0] == 0
    await standby.reaches(fleet, "active")
    return standby


async def tell(site: Site, word: str) -> tuple[int, str]:
    """`tokenfleet workers WORD`: exit code and what it says."""
    command = [sys.executable, "-m", "tokenfleet", "workers", word, LABEL, "--redis-url", site.server.url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


async def submit(fleet: Fleet, model: str, tokens: int, *, stream: bool = False) -> Job:
    return await fleet.submit(model=model, prompt="Hello", max_tokens=tokens, ignore_eos=True, stream=stream)


async def test_a_standby_sleeps_not_on_a_cpu_and_is_promoted_within_a_second(
    site: Site, fleet: Fleet, standby: Staff
) -> None:
    code, said = await tell(site, "sleep")
    assert code == 2
    assert "CPU" in said
    await standby.reaches(fleet, "warm")
    # Only this worker has the adapter, so the job waits for it.
    job = await submit(fleet, RIGHT, 50, stream=True)
    first = asyncio.create_task(first_token_s(job))
    told_s = asyncio.get_running_loop().time()
    await command_worker(fleet.redis, LABEL, "promote")
    assert await first - told_s < FIRST_TOKEN_S
    assert (await job.result(END_S)).state is State.COMPLETED


async def first_token_s(job: Job) -> float:
    async for event in job.follow():
        if isinstance(event, Tokens):
            return asyncio.get_running_loop().time()
    raise AssertionError("there was no token")


async def test_sixteen_jobs_at_once_on_two_workers(fleet: Fleet, tiny: Staff, promoted: Staff) -> None:
    jobs = [await submit(fleet, TINY, 100) for _ in range(16)]
    outcomes = [await job.result(END_S) for job in jobs]
    assert {outcome.state for outcome in outcomes} == {State.COMPLETED}
    assert {outcome.usage["completion_tokens"] for outcome in outcomes} == {100}
    workers = [await staff.reaches(fleet, "active") for staff in (tiny, promoted)]
    assert {(await job.info()).record.worker for job in jobs} == {worker.record.id for worker in workers}


async def test_jobs_for_an_adapter_go_to_the_worker_that_has_it(fleet: Fleet, tiny: Staff, promoted: Staff) -> None:
    for staff, adapter in ((tiny, LEFT), (promoted, RIGHT)):
        worker = await staff.reaches(fleet, "active")
        assert adapter in worker.record.models
        jobs = [await submit(fleet, adapter, 5) for _ in range(6)]
        outcomes = [await job.result(END_S) for job in jobs]
        assert {(outcome.body or {}).get("model") for outcome in outcomes} == {adapter}
        assert {(await job.info()).record.worker for job in jobs} == {worker.record.id}


async def test_a_worker_that_is_told_to_end_finishes_what_it_runs(fleet: Fleet, promoted: Staff) -> None:
    # Of a job that does not stream, its first token is told at its end.
    job = await submit(fleet, RIGHT, 500, stream=True)

    async def runs() -> bool:
        return (await job.info()).record.first_token_ms > 0

    assert await eventually(runs, timeout_s=20)
    family = promoted.role.family()
    assert await asyncio.to_thread(promoted.role.terminate) == 0
    outcome = await job.result(1)
    assert outcome.state is State.COMPLETED
    assert outcome.usage["completion_tokens"] == 500
    assert (await job.info()).record.strikes == 0
    assert gone(family, 5)
