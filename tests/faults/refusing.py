"""Engines that answer 429 or 503: their workers pause and say so, and others get the jobs."""

import asyncio
from functools import partial

from aiohttp import web

from protocol.messages import WorkerRecord
from protocol.states import State
from tests.faults.engines import AS_TOLD, answers, attach, behind, chat, first, serve
from tests.faults.matrix import Fault, Seen
from tests.faults.stage import Stage, now, read, undisturbed
from tests.support.waiting import eventually
from tests.worker.engine.vllm.stand_in import HELLO, Play
from worker.refusals import FIRST_PAUSE_S

SLOTS = 8
JOBS = 12
TOLD_S = 15.0
ASKING = 2
"""Jobs that a pausing engine is asked by, at most, while others are done."""


class Switch:
    """Plays what it is set to, and counts the answers."""

    def __init__(self, play: Play) -> None:
        self.play, self.asked = play, 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        return await self.play(request)


async def is_busy(stage: Stage, status: int) -> Seen:
    stand_in = await behind(stage, first(answers(status, **{"Retry-After": "0"}), answers(status), HELLO))
    began_at = now()
    job = await chat(stage)
    reading = asyncio.create_task(read(stage.fleet, job))
    await eventually(lambda: _says(stage, True, 0), TOLD_S)
    outcome = await undisturbed(job, reading)
    record = (await job.info()).record
    assert (outcome.text, len(stand_in.bodies)) == (AS_TOLD, 3)
    assert (record.strikes, record.tries) == (0, 0), "the job was blamed"
    took_s = now() - began_at
    assert took_s >= 3 * FIRST_PAUSE_S, f"two refusals, and again within {took_s:.1f} s: that is no backoff"
    await eventually(lambda: _says(stage, False, SLOTS), TOLD_S)
    return Seen("asked again after a pause and after one twice as long; no try and no strike counted", took_s)


async def beside_another(stage: Stage) -> Seen:
    refusing, well = Switch(answers(503)), Switch(HELLO)
    for label, engine in (("w1", refusing), ("w2", well)):
        attach(stage, (await serve(stage, engine))[1], label)
    stage.scheduler()
    await stage.active(2)
    await eventually(lambda: _is_asked(stage, refusing), TOLD_S)
    # Once the pause is over it takes one that asks.
    await eventually(lambda: _says(stage, True, 0, 1), TOLD_S)
    before = refusing.asked, well.asked
    jobs = [await chat(stage) for _ in range(JOBS)]
    ends = [(await job.result(timeout=15)).state for job in jobs]
    assert ends == [State.COMPLETED] * JOBS, ends
    asked = refusing.asked - before[0]
    assert asked <= ASKING, f"the engine that refuses was asked {asked} times more"
    assert well.asked - before[1] >= JOBS
    refusing.play, well_at = HELLO, now()
    # Nobody knows that it is well before one job has asked, and the other one has room for all.
    other = stage.roles[1]
    other.tell()
    await other.dies()
    assert await _is_asked(stage, refusing, refusing.asked)
    await eventually(lambda: _says(stage, False, SLOTS), TOLD_S)
    recovery_s = now() - well_at
    return Seen(f"{JOBS} jobs went to the other, and it was asked {asked} times more; in use again", recovery_s)


async def _is_asked(stage: Stage, engine: Switch, before: int = 0) -> bool:
    """Send it a job, as far as chance has it."""
    await (await chat(stage)).result(timeout=15)
    return engine.asked > before


async def _says(stage: Stage, refusing: bool, *slots: int) -> WorkerRecord:
    """The first worker's record, once it reports this, with one of these slots, and has nothing on its engine."""
    worker = next((worker for worker in await stage.workers() if worker.label == "w1"), None)
    assert worker, "it is away"
    told = worker.report.refusing, worker.slots
    assert told in [(refusing, each) for each in slots], f"it reports {told}"
    assert worker.report.running + worker.report.waiting + worker.held == 0
    return worker


ROWS = (
    Fault("the engine answers 429", "backoff with jitter, load published", partial(is_busy, status=429)),
    Fault("the engine answers 503", "backoff with jitter, load published", partial(is_busy, status=503)),
    Fault("one engine of two answers 503", "the other gets the jobs; both again once it is well", beside_another),
)
