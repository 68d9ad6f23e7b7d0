"""What runs in the forked processes; importing this warms their parent."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator

import uvloop

from bench.chaos import clients
from bench.chaos.journal import Journal
from bench.chaos.plan import MODEL, POISON, Plan, number_of
from protocol import log
from protocol.handle import Handle
from protocol.wire import JsonObject
from scheduler import process as scheduler_process
from worker import process as worker_process
from worker.engine.base import Capacity, EngineRequest
from worker.engine.sim.engine import SimEngine
from worker.options import WorkerOptions

CRASH = signal.SIGUSR1
"""Tells a worker to let its engine die."""


class FrailEngine(SimEngine):
    """Dies when it is told to; at a poisonous request it notes whom it cuts off, and takes the whole worker along."""

    def __init__(self, journal: Journal, slots: int) -> None:
        """`journal` takes the notes."""
        super().__init__(slots=slots)
        self._journal = journal

    async def start(self) -> Capacity:
        """Come up; from then on `CRASH` brings it down."""
        loop = asyncio.get_running_loop()
        self._crashes: set[asyncio.Task[None]] = set()
        loop.add_signal_handler(CRASH, lambda: self._crashes.add(loop.create_task(self.crash())))
        return await super().start()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        """Generate, unless it is poison."""
        if POISON in str(request.body.get("prompt")):
            for name in self._streams:
                handle, _, attempt = name.partition("#")[0].rpartition("-")
                self._journal.note("cut", number_of(Handle.parse(handle).own_id), int(attempt), "poison")
            os.kill(os.getpid(), signal.SIGKILL)
        async for chunk in super().generate(request):
            yield chunk


def work(plan: Plan, label: str) -> None:
    """A worker."""
    log.configure("warning", "json")
    engine = FrailEngine(Journal(plan.journal(label)), plan.slots)
    worker_process.main(plan.settings, WorkerOptions(engine=engine, models=(MODEL,), label=label, slots=plan.slots))


def schedule(plan: Plan) -> None:
    """A scheduler."""
    scheduler_process.main(plan.settings)


def produce(plan: Plan, producer: int) -> None:
    """A producer."""
    uvloop.run(clients.produce(plan, producer))


def follow(plan: Plan, follower: int) -> None:
    """A follower."""
    uvloop.run(clients.follow(plan, follower))
