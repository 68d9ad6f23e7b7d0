"""A worker as a process: one signal drains, two stop at once."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis

from protocol import reads
from protocol.states import State
from tests.support.builders import SHARD
from tests.support.driver import Driver
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
# A job on this engine lasts longer than any test.
PROGRAM = """
import sys
from protocol.settings import Settings
from worker.engine.sim.engine import SimEngine
from worker.options import WorkerOptions
from worker.process import main
sys.exit(main(Settings.load(beat_s=0.05), WorkerOptions(SimEngine(speed=0.001), ("m",), pool="pool")))
"""


@asynccontextmanager
async def worker_process(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    env = os.environ | {"TOKENFLEET_REDIS_URL": url, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, env=env, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def has(driver: Driver, state: str) -> str:
    """The worker's id, once it is in this state."""
    leases = driver.run(reads.leases(SHARD))
    records = [driver.run(reads.worker_record(SHARD, worker)) for worker in leases]
    return next((record.id for record in records if record and record.state == state), "")


def runs_one(driver: Driver, worker: str) -> bool:
    """Whether its engine has a job: the worker hears that one has started a moment after Redis does."""
    record = driver.run(reads.worker_record(SHARD, worker))
    return bool(record and record.report.running)


@pytest.mark.parametrize(("busy", "signals", "code"), [(False, 1, 0), (True, 2, 130)])
async def test_signals(valkey_url: str, busy: bool, signals: int, code: int) -> None:
    with Redis.from_url(valkey_url) as client:
        driver = Driver(client)
        async with worker_process(valkey_url) as process:
            worker = await eventually(lambda: has(driver, "active"), timeout_s=20)
            driver.lead()
            handle = driver.submit().handle
            if busy:
                driver.assign(handle, worker)
                await eventually(lambda: runs_one(driver, worker))
            process.send_signal(signal.SIGTERM)
            if signals == 2:
                await eventually(lambda: has(driver, "draining"))
                process.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(process.wait(), 10) == code
        assert driver.run(reads.leases(SHARD)) == {}
        assert driver.job(handle).state is State.QUEUED
