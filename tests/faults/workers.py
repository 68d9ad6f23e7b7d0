"""Workers that are killed, stopped, restarted."""

import asyncio
from functools import partial

from producer.jobs import Job
from protocol import reads
from protocol.call import run
from protocol.states import State
from tests.faults.matrix import Fault, Seen
from tests.faults.stage import RERUN_S, Stage, now, read, undisturbed
from tests.support.waiting import eventually

KILLED_AT = {
    "worker.before_start": ("before it has fetched the job", 0),
    "worker.before_engine": ("before the engine has it", 1),
    "worker.mid_stream@40": ("in mid-stream", 1),
    "worker.before_finish": ("before it finishes the job", 1),
}
"""Point → in words, and the strikes that it costs."""


async def killed(stage: Stage, at: str) -> Seen:
    _, strikes = KILLED_AT[at]
    point, _, nth = at.partition("@")
    stage.scheduler()
    victim = stage.worker("w1", failpoints=f"{point}=kill@{nth or 1}")
    await stage.active()
    job = await stage.submit()
    reading = asyncio.create_task(read(stage.fleet, job))
    died_at = await victim.dies()
    first = (await job.info()).record.attempt
    stage.worker("w2")

    async def speaks_again() -> bool:
        record = (await job.info()).record
        frames = await run(stage.fleet.redis, reads.log_after(job.handle, (record.attempt, 0)))
        return record.attempt > first and bool(frames)

    await eventually(speaks_again, 10)
    recovery_s = now() - died_at
    outcome = await undisturbed(job, reading)
    record = (await job.info()).record
    assert record.strikes == strikes, f"{record.strikes} strikes"
    assert recovery_s <= RERUN_S, f"it ran again after {recovery_s:.1f} s"
    return Seen(f"attempt {outcome.attempt} gave the whole text, strikes {record.strikes}", recovery_s)


async def killed_after_finish(stage: Stage) -> Seen:
    stage.scheduler()
    victim = stage.worker("w1", failpoints="worker.after_finish=kill")
    await stage.active()
    job = await stage.submit()
    reading = asyncio.create_task(read(stage.fleet, job))
    await victim.dies()
    died_at = now()
    outcome = await undisturbed(job, reading)
    recovery_s = now() - died_at
    stage.worker("w2")

    async def victim_is_gone() -> bool:
        return [worker.label for worker in await stage.workers()] == ["w2"]

    await eventually(victim_is_gone, 10)
    record = (await job.info()).record
    assert (record.attempt, record.strikes) == (outcome.attempt, 0), "it ran again"
    return Seen("the stored result stands, nothing ran again", recovery_s)


async def stopped_past_its_lease(stage: Stage) -> Seen:
    stage.scheduler()
    sleeper = stage.worker("w1")
    await stage.active()
    job = await stage.submit()
    reading = asyncio.create_task(read(stage.fleet, job))
    first = await stage.running(job)
    sleeper.pause()
    stopped_at = now()
    stage.worker("w2")
    outcome = await undisturbed(job, reading)
    recovery_s = now() - stopped_at
    frames = await run(stage.fleet.redis, reads.log_after(job.handle, (0, 0)))
    sleeper.resume()
    await eventually(lambda: sleeper.says("life_ended"), 10)
    await stage.active(2)
    assert outcome.attempt > first.attempt, "the stopped worker's attempt was recorded"
    assert await run(stage.fleet.redis, reads.log_after(job.handle, (0, 0))) == frames, "a stale frame was written"
    assert (await job.result()) == outcome, "a stale finish was written"
    record = (await job.info()).record
    assert record.strikes == 1, f"{record.strikes} strikes"
    return Seen("its writes were refused, it aborted its work and began a new life", recovery_s)


async def stopped_before_its_finish(stage: Stage) -> Seen:
    """What it sends when it wakes up is a finish of a job that runs elsewhere, in mid-stream."""
    stage.scheduler()
    sleeper = stage.worker("w1", failpoints="worker.before_finish=stop", speed=4)
    await stage.active()
    # Without frames: nothing but the fence can tell that the finish is stale.
    job = await stage.submit(words=300, stream=False)
    reading = asyncio.create_task(read(stage.fleet, job))
    await eventually(lambda: sleeper.says("failpoint_reached"), 10)
    stopped_at = now()
    first = (await job.info()).record.attempt
    stage.worker("w2")
    await eventually(lambda: _runs_as(job, first + 1), 10)
    recovery_s = now() - stopped_at
    sleeper.resume()
    await eventually(lambda: sleeper.says("life_ended"), 10)
    assert await _runs_as(job, first + 1), "the stale finish ended the job"
    outcome = await undisturbed(job, reading)
    assert outcome.attempt == first + 1, f"attempt {outcome.attempt}"
    return Seen("its finish was refused while the job ran elsewhere", recovery_s)


async def _runs_as(job: Job, attempt: int) -> bool:
    record = (await job.info()).record
    return (record.state, record.attempt) == (State.RUNNING, attempt)


async def restarted(stage: Stage) -> Seen:
    stage.scheduler()
    old = stage.worker("w1")
    await stage.active()
    before = (await stage.workers())[0].id
    job = await stage.submit()
    reading = asyncio.create_task(read(stage.fleet, job))
    await stage.running(job)
    old.kill()
    killed_at = await old.dies()
    stage.worker("w1")
    await eventually(lambda: _is_another(stage, before), 10)
    await undisturbed(job, reading)
    recovery_s = now() - killed_at
    record = (await job.info()).record
    assert record.worker != before, "the old life's id was used"
    assert record.strikes == 1, f"{record.strikes} strikes"
    return Seen("a new id under the old label; the job came back with the lease", recovery_s)


async def _is_another(stage: Stage, before: str) -> bool:
    return any(worker.label == "w1" and worker.id != before for worker in await stage.workers())


async def left(stage: Stage) -> Seen:
    stage.scheduler()
    old = stage.worker("w1")
    await stage.active()
    job = await stage.submit(words=3_000)
    await stage.running(job)
    stopped_at = now()
    old.tell()
    old.tell()

    async def queued_again() -> bool:
        return (await job.info()).record.state is State.QUEUED

    await eventually(queued_again, RERUN_S)
    recovery_s = now() - stopped_at
    await old.dies()
    assert (await job.info()).record.strikes == 0, "a drain struck the job"
    assert await stage.workers() == [], "it left something behind"
    return Seen("its `leave` gave the job back at once, without a strike", recovery_s)


async def never_existed(stage: Stage) -> Seen:
    stage.scheduler()
    passing = stage.worker("w1")
    await stage.active()
    passing.tell()
    await passing.dies()
    job = await stage.submit()
    stage.worker("w2")
    await stage.active()
    outcome = await job.result(timeout=20)
    record = (await job.info()).record
    assert (record.attempt, record.history) == (outcome.attempt, ()), "it was assigned to nobody first"
    return Seen("the job waited in its lane until somebody was there")


ROWS = (
    *(
        Fault(
            f"kill -9 of a worker {words}",
            f"rerun within lease + 2 s, one whole text, {strikes} strikes",
            partial(killed, at=at),
        )
        for at, (words, strikes) in KILLED_AT.items()
    ),
    Fault("kill -9 of a worker after it finished the job", "the result stands, no rerun", killed_after_finish),
    Fault(
        "SIGSTOP of a worker past its lease, then SIGCONT",
        "its finish and frames are refused, it aborts and begins anew",
        stopped_past_its_lease,
    ),
    Fault("SIGSTOP of a worker before its finish, then SIGCONT", "the finish is refused", stopped_before_its_finish),
    Fault("a worker restarted under its label", "a new id; its job comes back at the lease's end", restarted),
    Fault("a worker told to stop", "its job comes back by `leave`, no strike", left),
    Fault("a worker that is not there", "nothing is assigned to it", never_existed),
)
