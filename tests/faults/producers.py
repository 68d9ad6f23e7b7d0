"""Producers that are killed, repeat themselves, or come back all at once."""

import asyncio
from functools import partial

from protocol import keys
from protocol.errors import UnknownJob
from protocol.handle import Handle, Shard
from protocol.states import State
from tests.faults.matrix import Fault, Seen
from tests.faults.stage import MODEL, Stage, now, read
from tests.support.waiting import eventually

CLIENTS = 100
ORDER = ("submit", "--model", MODEL, "--id", "once", "--max-tokens", "20", "a prompt")


async def killed(stage: Stage, point: str, *, stored: bool) -> Seen:
    await stage.crew()
    job = Handle(Shard(MODEL), "default", "once")
    died_at = await stage.role("producer", *ORDER, failpoints=f"{point}=kill").dies()
    try:
        found = bool((await stage.fleet.job(job)).record)
    except UnknownJob:
        found = False
    assert found is stored, f"in Redis before the second submit: {found}"
    again = stage.role("producer", *ORDER, "--wait")
    await again.dies()
    assert again.code == 0, "the second submit did not get the answer"
    record = (await stage.fleet.job(job)).record
    assert (record.state, record.attempt, record.history) == (State.COMPLETED, 1, ()), "it ran more than once"
    return Seen("one job, one run", now() - died_at)


async def reply_dropped(stage: Stage) -> Seen:
    await stage.crew()
    proxy = await stage.proxy()
    client = await stage.client(proxy.url)
    await client.models()
    proxy.drop_reply(b"tf1_submit")
    began_at = now()
    job = await client.submit(model=MODEL, prompt="once", max_tokens=20)
    recovery_s = now() - began_at
    outcome = await job.result(timeout=20)
    assert proxy.dropped == 1, "no reply was dropped"
    assert outcome.attempt == 1, f"attempt {outcome.attempt}"
    jobs = [key async for key in stage.fleet.redis.scan_iter(f"{keys.prefix(Shard(MODEL))}job:*")]
    assert len(jobs) == 1, f"{len(jobs)} jobs"
    return Seen("submitted again by itself: one job", recovery_s)


async def all_reconnect(stage: Stage) -> Seen:
    await stage.crew()
    proxy = await stage.proxy()
    clients = [await stage.client(proxy.url) for _ in range(CLIENTS)]
    job = await stage.submit(words=200)
    readings = [asyncio.create_task(read(client, job)) for client in clients]
    await eventually(lambda: len(proxy.accepted) >= 2 * CLIENTS, 20)
    proxy.cut()
    cut_at = now()
    await eventually(lambda: len(proxy.accepted) >= 3 * CLIENTS, 20)
    proxy.mend()
    away_s = now() - cut_at
    seen = await asyncio.gather(*readings)
    recovery_s = now() - cut_at
    outcome = await job.result(timeout=20)
    assert all(one.text == outcome.text and one.whole for one in seen), "some lost or doubled text"
    return Seen(f"{CLIENTS} followers cut off for {away_s:.1f} s; each has the whole text, once", recovery_s)


ROWS = (
    Fault(
        "kill -9 of a producer before it sends",
        "the same id submitted again is one job",
        partial(killed, point="producer.before_submit", stored=False),
    ),
    Fault(
        "kill -9 of a producer after it sent, before it knows",
        "the same id submitted again is one job",
        partial(killed, point="producer.after_submit", stored=True),
    ),
    Fault("the reply to a submit is dropped", "one job", reply_dropped),
    Fault(
        "a submit twice, with the same body and with another",
        "the same job; a conflict",
        tests=(
            "tests/producer/test_fleet.py::test_the_same_id_is_the_same_job_and_another_body_is_a_conflict",
            "tests/protocol/test_lifecycle.py::test_another_body_under_a_living_id_is_refused",
        ),
    ),
    Fault("100 clients are cut off and reconnect", "each reads on where it was, no text lost", all_reconnect),
    Fault(
        "100 clients reconnect at once",
        "jitter, no storm",
        tests=("tests/protocol/test_store.py::test_a_hundred_clients_come_back_spread_over_time",),
    ),
)
