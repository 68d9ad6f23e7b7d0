"""Jobs that were set aside: what is listed, what a look at one shows, and what is no more after a replay."""

from itertools import count
from typing import Any

import pytest
from redis.asyncio import Redis

from producer import dead
from producer.dead import list_dead, read_dead
from producer.fleet import Fleet
from producer.jobs import Job
from protocol import keys
from protocol.call import Call, run
from protocol.errors import NotDead
from protocol.functions import requeue
from protocol.states import State
from tests.producer.tiny import MODEL, TinyWorker

CANARY = "canary-7261"


async def a_dead_job(fleet: Fleet, worker: TinyWorker, own_id: str, unfollowed_s: float | None = None) -> Job:
    """A job that killed its worker's engine three times."""
    asked = [{"role": "user", "content": CANARY}]
    job = await fleet.submit(model=MODEL, messages=asked, id=own_id, cancel_unfollowed=unfollowed_s)
    for strike in range(3):
        attempt = await worker.take_one()
        given_back = requeue(attempt.handle, attempt.number, worker.name, "strike", why=f"engine died, {strike}")
        assert await run(fleet.redis, given_back) == ("dead" if strike == 2 else "ok")
    return job


async def test_a_job_that_was_set_aside_shows_its_history(fleet: Fleet, worker: TinyWorker) -> None:
    job = await a_dead_job(fleet, worker, "bad")
    (listed,) = await list_dead(fleet.redis)
    assert listed.record
    assert (listed.handle, listed.code, listed.record.strikes) == (job.handle, "struck_out", 3)
    info = await read_dead(fleet.redis, job.handle)
    assert info.job == listed
    assert (info.body, info.outcome and info.outcome.state) == (None, State.FAILED)
    assert CANARY not in repr(info)
    history = listed.record.history
    assert [(attempt.worker, attempt.fault, attempt.why) for attempt in history] == [
        ("label-w1", "strike", f"engine died, {strike}") for strike in range(3)
    ]
    assert listed.at_ms >= history[-1].at_ms > 0
    assert CANARY.encode() in ((await read_dead(fleet.redis, job.handle, body=True)).body or b"")


async def test_the_last_ones_come_first_and_no_more_than_asked(
    fleet: Fleet, worker: TinyWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "PAGE", 2)
    handles = [(await a_dead_job(fleet, worker, f"j{n}")).handle for n in range(5)]
    assert {job.handle for job in await list_dead(fleet.redis)} == set(handles)
    last = await list_dead(fleet.redis, limit=3)
    assert [job.at_ms for job in last] == sorted((job.at_ms for job in last), reverse=True)
    assert len(last) == 3
    assert [job.handle for job in await list_dead(fleet.redis, limit=1)] == handles[-1:]
    assert await list_dead(fleet.redis, pool="other") == []
    assert len(await list_dead(fleet.redis, pool=worker.shard.pool)) == 5


async def test_a_replayed_job_is_dead_no_more(fleet: Fleet, worker: TinyWorker) -> None:
    job = await a_dead_job(fleet, worker, "bad")
    assert (await fleet.replay(str(job))).handle == job.handle
    assert await list_dead(fleet.redis) == []
    with pytest.raises(NotDead):
        await read_dead(fleet.redis, job.handle)
    with pytest.raises(NotDead):
        await fleet.replay(str(job))
    await (await worker.take_one()).finish("well again")
    assert (await job.result(timeout=5)).text == "well again"


async def test_who_replays_a_job_need_not_follow_it(fleet: Fleet, worker: TinyWorker) -> None:
    job = await a_dead_job(fleet, worker, "bad", unfollowed_s=9)
    assert (await job.info()).record.spec.unfollowed_s == 9
    await fleet.replay(str(job))
    assert (await job.info()).record.spec.unfollowed_s is None
    await (await worker.take_one()).finish("well again")


async def test_what_is_gone_is_left_out_and_what_can_not_be_read_is_shown(
    fleet: Fleet, worker: TinyWorker, redis: Redis
) -> None:
    gone, text, broken = [(await a_dead_job(fleet, worker, own_id)).handle for own_id in ("gone", "text", "broken")]
    await redis.delete(keys.job(gone))
    await redis.set(keys.job(text), "written by hand", ex=60)
    await run(redis, Call(("HSET", keys.job(broken), "spec", "{"), int))
    (listed,) = await list_dead(redis)
    assert (listed.handle, listed.code, listed.record) == (broken, "malformed", None)
    assert (await read_dead(redis, broken)).job == listed


async def test_all_of_a_shard_are_read_in_four_round_trips(
    fleet: Fleet, worker: TinyWorker, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live page asks for fifty of them each second."""
    for number in range(5):
        await a_dead_job(fleet, worker, f"j{number}")
    pipeline, command, trips = redis.pipeline, redis.execute_command, count()

    def piped(**how: Any) -> Any:
        next(trips)
        return pipeline(**how)

    def commanded(*words: Any, **how: Any) -> Any:
        next(trips)
        return command(*words, **how)  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here

    monkeypatch.setattr(redis, "pipeline", piped)
    monkeypatch.setattr(redis, "execute_command", commanded)
    assert len(await list_dead(redis)) == 5
    # The models, the entries, their marks, the records.
    assert next(trips) == 4
