"""An engine that dies or hangs is brought up again, and its jobs complete; a worker that dies leaves nothing."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from producer.events import End, Restart, Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from protocol import watch
from protocol.call import run
from protocol.states import State
from tests.support.waiting import eventually
from tests.vllm.roles import DUMMY, EngineProcesses, gone
from tests.vllm.site import START_S, Plan, Site, Staff

pytestmark = pytest.mark.vllm

MODEL = "victim"
STALL_S = 3.0
TOKENS = 1_500
LEFT_S = 10.0
LONG = "a long prompt " * 80


@pytest.fixture(scope="module")
def victims(site: Site, tiny_folder: Path) -> Iterator[list[Staff]]:
    """The worker that runs; a test that kills it leaves the list empty."""
    environment = {"TOKENFLEET_ENGINE_STALL_S": str(STALL_S), "TOKENFLEET_LEASE_S": "2"}
    flags = [*DUMMY, "--max-model-len", "8192", "--max-num-seqs", "4"]
    with site.worker(Plan("victim", MODEL, tiny_folder, 1, flags=flags, environment=environment)) as worker:
        yield [worker]


@pytest.fixture
async def victim(victims: list[Staff], fleet: Fleet) -> Staff:
    await victims[0].reaches(fleet, "active", START_S)
    return victims[0]


async def begin(fleet: Fleet) -> tuple[Job, "asyncio.Task[tuple[str, int]]"]:
    """A job in mid-stream, and its reader: the text that it ends up with, and how often that began anew."""
    job = await fleet.submit(model=MODEL, prompt="go on", max_tokens=TOKENS, ignore_eos=True, stream=True)
    speaking = asyncio.Event()
    reading = asyncio.create_task(read(job, speaking))
    async with asyncio.timeout(30):
        await speaking.wait()
    return job, reading


async def read(job: Job, speaking: asyncio.Event) -> tuple[str, int]:
    text, restarts = "", 0
    async for event in job.follow():
        if isinstance(event, Restart):
            text, restarts = "", restarts + 1
        elif isinstance(event, Tokens):
            speaking.set()
            text += event.text
        elif isinstance(event, End):
            break
    return text, restarts


async def completes_after_a_strike(
    fleet: Fleet, victim: Staff, break_it: Callable[[EngineProcesses], None], why: str
) -> None:
    before = victim.role.engine()
    job, reading = await begin(fleet)
    break_it(before)
    await victim.reaches(fleet, "unhealthy", STALL_S + 10)
    outcome = await job.result(START_S)
    assert outcome.state is State.COMPLETED, outcome
    assert outcome.usage["completion_tokens"] == TOKENS
    # It goes on with what it had said.
    assert await reading == (outcome.text, 0)
    record = (await job.info()).record
    assert record.strikes == 1
    # Behind it may stand what the worker gave back untouched until the dispatcher had heard of it.
    struck = [attempt for attempt in record.history if attempt.fault != "none"]
    assert [(attempt.fault, attempt.worker) for attempt in struck] == [("strike", victim.label)]
    assert record.history[0] == struck[0]
    assert why in struck[0].why
    assert gone(before.everything, LEFT_S)
    assert victim.role.engine().core.pid != before.core.pid


async def test_the_engine_is_killed_and_its_cache_is_forgotten(fleet: Fleet, victim: Staff) -> None:
    job = await fleet.submit(model=MODEL, prompt=LONG, max_tokens=2)
    await job.result(30)
    hashes = set((await job.info()).record.spec.prefix)
    placed = await victim.reaches(fleet, "active")

    async def told() -> frozenset[str]:
        return await run(fleet.redis, watch.prefixes(placed.shard, placed.record.id))

    async def all_told() -> bool:
        return bool(hashes) and hashes <= await told()

    assert await eventually(all_told)
    await completes_after_a_strike(fleet, victim, lambda engine: engine.core.kill(), "does not answer")
    assert not hashes & await told()


async def test_the_server_is_killed(fleet: Fleet, victim: Staff) -> None:
    await completes_after_a_strike(fleet, victim, lambda engine: engine.server.kill(), "does not answer")


async def test_the_engine_hangs_while_its_server_is_well(fleet: Fleet, victim: Staff) -> None:
    await completes_after_a_strike(fleet, victim, lambda engine: engine.pause_core(), "nothing has moved")
    assert victim.role.events("vllm_hung")


async def test_a_killed_worker_leaves_no_process(fleet: Fleet, victim: Staff, victims: list[Staff]) -> None:
    job, reading = await begin(fleet)
    family: list[psutil.Process] = victim.role.family()
    victims.clear()
    victim.role.kill()
    assert gone(family, LEFT_S)

    async def queued_again() -> bool:
        return (await job.info()).record.state is State.QUEUED

    assert await eventually(queued_again, timeout_s=10)
    assert [attempt.fault for attempt in (await job.info()).record.history] == ["strike"]
    await job.cancel()
    await reading
