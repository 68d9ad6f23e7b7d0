"""A fleet with a simulated engine, and batch runners as real processes beside it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.fleet import Fleet
from protocol.batches import BatchName, BatchRecord
from protocol.settings import Settings
from tests.support.waiting import eventually
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

MODEL = "demo"
SLOW = 1.0
"""Simulated engine speed: a row of 60 tokens takes about a second, so that a batch is met in the middle."""


class Runners:
    """Batch runners on one store; those that live are stopped at the end."""

    def __init__(self, url: str, store: Path) -> None:
        self.store = store
        self.environment = os.environ | {
            "TOKENFLEET_REDIS_URL": url,
            "TOKENFLEET_STORE": str(store),
            "TOKENFLEET_BATCH_LEASE_S": "1.5",
            "TOKENFLEET_WEBHOOK_RETRY_S": "0.1",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, **settings: str) -> "subprocess.Popen[bytes]":
        """One more."""
        command = [sys.executable, "-m", "tokenfleet", "batch-runner", "--log-format", "json"]
        log = (self.store.parent / f"runner-{len(self.processes)}.log").open("wb")
        with log:
            process = subprocess.Popen(command, env=self.environment | settings, stderr=log)
        self.processes.append(process)
        return process

    def log(self, number: int) -> list[dict[str, Any]]:
        """What a runner has said so far; a line that it is writing is left out."""
        text = (self.store.parent / f"runner-{number}.log").read_text()
        return [json.loads(line) for line in text.split("\n")[:-1] if line.startswith("{")]

    def events(self, number: int) -> list[str]:
        return [str(line["event"]) for line in self.log(number)]

    async def owner(self, name: BatchName) -> "subprocess.Popen[bytes]":
        """The one that took the batch first."""

        def took() -> list[int]:
            said = [(number, self.log(number)) for number in range(len(self.processes))]
            taken = [("batch_taken", name.id)]
            return [n for n, lines in said if any((x["event"], x.get("batch")) in taken for x in lines)]

        return self.processes[(await eventually(took, timeout_s=40))[0]]

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(timeout=20)


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedFleet]:
    async with EmbeddedFleet(FleetOptions(engine="sim", model=MODEL, sim_speed=SLOW)) as fleet:
        await fleet.ready(60)
        yield fleet


@pytest.fixture
def runners(embedded: EmbeddedFleet, tmp_path: Path) -> Iterator[Runners]:
    (tmp_path / "store").mkdir()
    made = Runners(embedded.redis_url, tmp_path / "store")
    yield made
    made.stop()


@pytest.fixture
async def fleet(embedded: EmbeddedFleet, runners: Runners) -> AsyncIterator[Fleet]:
    settings = Settings(redis_url=embedded.redis_url, store=runners.store, redis_patience_s=20)
    async with Fleet(settings=settings) as client:
        yield client


def requests(path: Path, count: int, tokens: int = 60, **body: Any) -> Path:
    """A batch's input of so many rows."""
    body = {"model": MODEL, "max_tokens": tokens, "ignore_eos": True, **body}
    rows = [
        {
            "custom_id": f"r{number}",
            "method": "POST",
            "url": "/v1/completions",
            "body": {**body, "prompt": f"Tell me about the number {number}."},
        }
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def done(fleet: Fleet, name: BatchName, rows: int) -> BatchRecord:
    """Wait until at least so many rows have completed."""

    async def enough() -> BatchRecord:
        record = await fleet.batches.get(name.id)
        assert record.counts.completed >= rows
        return record

    return await eventually(enough, timeout_s=30)


async def ended(fleet: Fleet, name: BatchName, timeout_s: float = 40) -> BatchRecord:
    """Wait until the batch has ended."""

    async def over() -> BatchRecord:
        record = await fleet.batches.get(name.id)
        assert record.status.terminal
        return record

    return await eventually(over, timeout_s)


async def ids(fleet: Fleet, name: BatchName) -> list[str]:
    return sorted([line["custom_id"] async for line in fleet.batches.results(name.id)])
