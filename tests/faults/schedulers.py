"""Schedulers that are killed or stopped, and two that would lead."""

import asyncio
from functools import partial

from producer.jobs import Job
from protocol.messages import JobRecord
from protocol.states import State
from tests.faults.matrix import Fault, Seen
from tests.faults.stage import MODEL, TAKEOVER_S, Role, Stage, now
from tests.support.waiting import eventually

JOBS = 12
LED = "nothing lost, one live assignment, a standby leads within 3 s"
KILLED_AT = {
    "scheduler.before_read": "at a read",
    "scheduler.before_assign": "before it assigns",
    "scheduler.after_assign": "after it assigned",
}


async def _pair(stage: Stage, failpoints: str = "") -> tuple[Role, Role]:
    """A leader and a standby."""
    leader = stage.scheduler(failpoints=failpoints)
    await eventually(lambda: leader.says("scheduler_started"), 10)
    stage.worker("w1")
    await eventually(lambda: leader.says("leader_taken"), 10)
    standby = stage.scheduler()
    await eventually(lambda: standby.says("scheduler_started"), 10)
    return leader, standby


async def _all_done(jobs: list[Job]) -> list[JobRecord]:
    """Each was completed by the first attempt that it got: nothing was assigned twice."""
    for job in jobs:
        outcome = await job.result(timeout=30)
        assert outcome.state is State.COMPLETED, f"a job is {outcome.state}"
    records = [(await job.info()).record for job in jobs]
    assert all(record.strikes == 0 and record.history == () for record in records), "some were assigned twice"
    assert len({record.attempt for record in records}) == len(jobs), "attempt numbers repeat"
    return records


async def killed(stage: Stage, at: str) -> Seen:
    # Not at its first rounds: it must lead, and a standby be there, before jobs come.
    leader, standby = await _pair(stage, f"{at}=kill@{15 if at.endswith('read') else 1}")
    jobs = [await stage.submit(f"j{n}", words=20) for n in range(JOBS)]
    died_at = await leader.dies(30)
    await eventually(lambda: standby.says("leader_taken"), 10)
    recovery_s = now() - died_at
    assert recovery_s <= TAKEOVER_S, f"the standby led after {recovery_s:.1f} s"
    jobs += [await stage.submit(f"k{n}", words=20) for n in range(JOBS)]
    await _all_done(jobs)
    return Seen(f"{len(jobs)} jobs, each by its first attempt", recovery_s)


async def killed_in_window(stage: Stage) -> Seen:
    leader, standby = await _pair(stage, "scheduler.in_window=kill")
    # A worker that runs half of what it may, and offline jobs of which more may come with the same beginning.
    long = [await stage.submit(f"long{n}", words=1_500) for n in range(5)]
    for job in long:
        await stage.running(job)
    prompt = "one beginning that many share " * 40
    jobs: list[Job] = []

    async def window_opens() -> bool:
        """One that the dispatcher sees within 20 ms is gathered; on a busy machine not each one is."""
        body = {"model": MODEL, "prompt": f"{prompt}{len(jobs)}", "max_tokens": 5}
        jobs.append(await stage.fleet.submit(body=body, endpoint="/v1/completions", priority="medium"))
        return leader.code is not None

    await eventually(window_opens, 10)
    died_at = now()
    await eventually(lambda: standby.says("leader_taken"), 10)
    recovery_s = now() - died_at
    assert recovery_s <= TAKEOVER_S, f"the standby led after {recovery_s:.1f} s"
    await _all_done(jobs + long)
    return Seen("the jobs that were being gathered went by the next leader", recovery_s)


async def leader_stopped(stage: Stage) -> Seen:
    leader, standby = await _pair(stage)
    before = [await stage.submit(f"j{n}", words=20) for n in range(JOBS)]
    leader.pause()
    stopped_at = now()
    await eventually(lambda: standby.says("leader_taken"), 10)
    recovery_s = now() - stopped_at
    # It wakes up in the middle of traffic, with a round begun that is out of date.
    after = [await stage.submit(f"k{n}", words=20) for n in range(JOBS)]
    leader.resume()
    after += [await stage.submit(f"l{n}", words=20) for n in range(JOBS)]
    await _all_done(before + after)
    await eventually(lambda: leader.says("leader_lost"), 10)
    assert recovery_s <= TAKEOVER_S, f"the standby led after {recovery_s:.1f} s"
    return Seen("the old leader's token was refused, no job was assigned twice", recovery_s)


async def leader_stopped_at_assign(stage: Stage) -> Seen:
    leader, standby = await _pair(stage, "scheduler.before_assign=stop")
    jobs = [await stage.submit(f"j{n}", words=20) for n in range(JOBS)]
    stopped_at = now()
    await eventually(lambda: leader.says("failpoint_reached"), 10)
    await eventually(lambda: standby.says("leader_taken"), 10)
    recovery_s = now() - stopped_at
    await asyncio.gather(*(job.result(timeout=30) for job in jobs[:2]))
    leader.resume()
    await eventually(lambda: leader.says("leader_lost"), 10)
    await _all_done(jobs)
    return Seen("its moves, decided before it slept, were refused when it woke up", recovery_s)


ROWS = (
    *(
        Fault(
            f"kill -9 of the scheduler {words}",
            LED,
            partial(killed, at=at),
        )
        for at, words in KILLED_AT.items()
    ),
    Fault("kill -9 of the scheduler in a batch window", LED, killed_in_window),
    Fault("SIGSTOP of the leader in traffic, then SIGCONT", "fenced, no double assignment", leader_stopped),
    Fault("SIGSTOP of the leader before it assigns", "fenced, no double assignment", leader_stopped_at_assign),
    Fault(
        "two leaders",
        "one leads; the other's moves are refused",
        tests=(
            "tests/scheduler/test_leading.py::test_only_one_of_two_leads",
            "tests/scheduler/test_leading.py::test_a_leader_that_lost_the_lead_moves_nothing",
        ),
    ),
)
