"""What runs in the forked processes; importing this warms their parent."""

import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from bench.batches.cuts import OVER, START, line_of
from bench.chaos.journal import Journal
from producer import batch, fleet
from protocol import log
from protocol.handle import Handle
from protocol.settings import Settings
from protocol.wire import JsonObject
from scheduler import process as scheduler_process
from tokenfleet.cli import main as tokenfleet
from tokenfleet.cli.batch import run as batch_run
from worker import process as worker_process
from worker.engine.base import EngineRequest
from worker.engine.sim.engine import SimEngine
from worker.options import WorkerOptions

WARM = (batch, batch_run, fleet)
"""Loaded here for the runner, which would load them when it runs."""


class CountedEngine(SimEngine):
    """Notes each request when it starts on it, and when it is done with it."""

    def __init__(self, journal: Journal, *, speed: float, slots: int) -> None:
        """`journal` takes the notes."""
        super().__init__(speed=speed, slots=slots)
        self._journal = journal

    async def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        """Note, generate, note: only a kill leaves out the second."""
        handle, _, attempt = request.request_id.rpartition("-")
        line = line_of(Handle.parse(handle).own_id)
        self._journal.note(START, line, int(attempt))
        try:
            async for chunk in super().generate(request):
                yield chunk
        finally:
            self._journal.note(OVER, line, int(attempt))


def work(settings: Settings, model: str, label: str, journal: Path, speed: float, slots: int) -> None:
    """A worker."""
    log.configure("warning", "json")
    engine = CountedEngine(Journal(journal), speed=speed, slots=slots)
    worker_process.main(settings, WorkerOptions(engine=engine, models=(model,), label=label, slots=slots))


def schedule(settings: Settings) -> None:
    """A scheduler."""
    log.configure("warning", "json")
    scheduler_process.main(settings)


def command(words: Sequence[str]) -> None:
    """`tokenfleet WORDS`."""
    sys.argv = ["tokenfleet", *words]
    sys.exit(tokenfleet())
