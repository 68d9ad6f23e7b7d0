"""The clients of a soak, as processes of their own: `python -m bench.soak.load dialogue|batch URL KEPT`."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from itertools import count
from pathlib import Path

import uvloop

from bench.soak.plan import BATCH_ROWS, MODEL, RATE, settings
from producer.batch.run import run_batch
from producer.events import End
from producer.fleet import Fleet
from producer.jobs import Job
from protocol import wire
from protocol.store import CONNECTIONS

LOOK_EACH = 100
"""Each so manieth job is looked at, and the fleet's status read."""
CANCEL_EACH = 50


@asynccontextmanager
async def _fleet(url: str) -> AsyncIterator[Fleet]:
    """A client whose pool is full: a pool grows with its busiest moment, up to its bound. What grows then is a leak."""
    async with Fleet(settings=settings(url)) as fleet:
        await fleet.ready(MODEL)
        await asyncio.gather(*(fleet.redis.ping() for _ in range(CONNECTIONS)))
        yield fleet


async def dialogue(url: str, kept: int) -> None:
    """Single jobs at a steady rate: submitted, followed, looked at, cancelled, forgotten but for each `kept`th."""
    loop = asyncio.get_running_loop()
    async with _fleet(url) as fleet, asyncio.TaskGroup() as group:
        due_s = loop.time()
        for number in count():
            length = _length(number)
            job = await fleet.submit(model=MODEL, prompt=f"turn {number}", stream=True, max_tokens=length)
            group.create_task(_one(fleet, job, number, forgotten=not kept or number % kept > 0))
            due_s = max(due_s + 1 / RATE, loop.time() - 1)
            await asyncio.sleep(due_s - loop.time())


def _length(number: int) -> int:
    """In tokens: all from 8 to 64 in turn, also among those that are kept. Drawn ones would make what is kept vary."""
    return 8 + 7 * number % 57


async def _one(fleet: Fleet, job: Job, number: int, *, forgotten: bool) -> None:
    if number % CANCEL_EACH == 0:
        await job.cancel()
    if number % LOOK_EACH == 0:
        await job.info()
        await fleet.status()
    async with aclosing(job.follow()) as events:
        async for event in events:
            # What nobody forgets goes by its retention.
            if isinstance(event, End) and forgotten:
                await fleet.forget(job.handle, event.outcome.attempt)


async def batches(url: str, _: int) -> None:
    """One batch after the other, for ever."""
    body = {"model": MODEL, "max_tokens": 16}
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        with source.open("wb") as lines:
            for number in range(BATCH_ROWS):
                row = {"custom_id": str(number), "method": "POST", "url": "/v1/completions"}
                lines.write(wire.dumps(row | {"body": body | {"prompt": f"row {number}"}}) + b"\n")
        async with _fleet(url) as fleet:
            while True:
                await run_batch(fleet, source, target, window=32, overwrite=True)
                await asyncio.sleep(2)


if __name__ == "__main__":
    _, kind, where, kept_each = sys.argv
    uvloop.run({"dialogue": dialogue, "batch": batches}[kind](where, int(kept_each)))
