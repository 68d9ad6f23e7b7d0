"""A primary behind Sentinel that hangs: its connections stay open, and the sentinels promote its replica."""

import asyncio
from functools import partial

from producer.fleet import Fleet
from producer.jobs import Job
from protocol.call import run
from protocol.errors import NotDurable
from protocol.functions import register
from protocol.messages import ModelRecord
from tests.faults.matrix import Fault, Seen
from tests.faults.stage import MODEL, Stage, now
from tests.faults.stores import all_undisturbed, streams
from tests.support.replication import Group, online_replicas
from tests.support.waiting import eventually

FOLLOWED_S = 15.0
"""The sentinels' agreement, and the time limit of a call that the old primary never answers."""


async def hung(stage: Stage, *, resumes: bool) -> Seen:
    """With `resumes` it goes on as soon as another is the primary, and takes writes until the sentinels demote it."""
    group = await _behind_sentinels(stage)
    stage.scheduler(url=group.url)
    for label in ("w1", "w2"):
        stage.worker(label, url=group.url)
    await stage.active(2)
    jobs, readings = await streams(stage, 300)
    promised: list[Job] = []
    submitting = asyncio.create_task(_submit_durably(stage.fleet, promised))
    await eventually(lambda: len(promised) >= 10, 10)
    old = group.primary
    old.pause()
    hung_at = now()
    await eventually(lambda: group.primary is not old, 10)
    if resumes:
        before = len(promised)
        old.resume()
        await eventually(lambda: online_replicas(group.primary) == 1, 30)
        await eventually(lambda: len(promised) > before, 10)
    after = await stage.submit("after", words=5)
    await after.result(timeout=20)
    recovery_s = now() - hung_at
    submitting.cancel()
    await asyncio.gather(submitting, return_exceptions=True)
    for job in promised:
        assert (await job.result(timeout=20)).text
    await all_undisturbed(jobs, readings)
    assert [role.code for role in stage.roles] == [None] * 3, "somebody had to be restarted"
    assert resumes or recovery_s <= FOLLOWED_S, f"served again after {recovery_s:.1f} s"
    return Seen(f"all followed; none of {len(promised)} durable submits lost, streams whole", recovery_s)


async def _behind_sentinels(stage: Stage) -> Group:
    """The stage's own client and roles talk to this group, in place of the stage's server."""
    folder = stage.folder / "group"
    folder.mkdir()
    group = Group(stage.binary, folder, append_only=True)
    stage.at_the_end(group.stop)
    await asyncio.to_thread(group.start)
    stage.fleet = await stage.client(group.url)
    await run(stage.fleet.redis, register(MODEL, ModelRecord(pool=MODEL)))
    return group


async def _submit_durably(fleet: Fleet, promised: list[Job]) -> None:
    """One short job after the other; `promised` are those that came back."""
    while True:
        try:
            promised.append(await fleet.submit(model=MODEL, prompt="kept", max_tokens=2, durable=True))
        except NotDurable:
            await asyncio.sleep(0)


ROWS = (
    Fault(
        "SIGSTOP of the primary behind Sentinel",
        "all follow the new one, no durable submit is lost",
        partial(hung, resumes=False),
    ),
    Fault(
        "SIGSTOP of the primary behind Sentinel, SIGCONT once another leads",
        "all follow the new one, no durable submit is lost",
        partial(hung, resumes=True),
        slow=True,
    ),
)
