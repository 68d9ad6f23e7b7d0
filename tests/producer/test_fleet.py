"""The client against real protocol calls: submit, wait, look, cancel, forget, and its typed refusals."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis

from producer.fleet import Fleet
from producer.jobs import Job
from producer.requests import JobRequest
from protocol import errors
from protocol.call import Call, run
from protocol.functions import register
from protocol.messages import ModelRecord
from protocol.settings import Settings
from protocol.states import Priority, State
from tests.producer.tiny import MODEL, TinyWorker, serving
from tests.support.builders import SHARD, tick_as
from tests.support.servers import Server, free_port

CHAT = [{"role": "user", "content": "hello there"}]


async def test_a_job_is_submitted_answered_and_forgotten(fleet: Fleet, worker: TinyWorker) -> None:
    job = await fleet.submit(model=MODEL, messages=CHAT, max_tokens=8)
    async with serving(worker):
        outcome = await job.result(timeout=5)
    assert (outcome.state, outcome.text, outcome.usage["completion_tokens"]) == (State.COMPLETED, "hello there ", 2)
    assert await fleet.forget(job.handle, outcome.attempt)
    with pytest.raises(errors.UnknownJob):
        await job.info()


async def test_a_waiter_that_was_there_first_hears_the_end(fleet: Fleet, worker: TinyWorker) -> None:
    job = await fleet.submit(model=MODEL, messages=CHAT)
    waiting = [asyncio.create_task(job.result(timeout=5)) for _ in range(3)]
    async with serving(worker):
        outcomes = await asyncio.gather(*waiting)
    assert [outcome.text for outcome in outcomes] == ["hello there "] * 3


async def test_a_late_caller_reads_the_stored_outcome(fleet: Fleet, worker: TinyWorker) -> None:
    job = await fleet.submit(model=MODEL, prompt="hello", priority=Priority.LOW)
    await (await worker.take_one()).finish("hi")
    assert (await fleet.result(str(job))).text == "hi"


async def test_a_wait_that_ends_first_leaves_the_job_alone(fleet: Fleet, worker: TinyWorker) -> None:
    job = await fleet.submit(model=MODEL, messages=CHAT)
    with pytest.raises(errors.WaitTimeout):
        await job.result(timeout=0.05)
    assert (await job.info()).record.state is State.QUEUED


@pytest.mark.parametrize("messages", ["hello", {"role": "user", "content": "hello"}, 5])
async def test_messages_are_a_list(fleet: Fleet, worker: TinyWorker, messages: object) -> None:
    with pytest.raises(errors.InvalidRequest, match=r'messages: a list is required, such as \[\{"role": "user"'):
        await fleet.submit(model=MODEL, messages=messages)  # type: ignore[arg-type]  # what users send
    assert await worker.take() == []


async def test_what_is_no_request_has_its_error_in_its_place(fleet: Fleet, worker: TinyWorker) -> None:
    fields = {"model": MODEL, "messages": CHAT}
    answers = await fleet.submit_many([fields, JobRequest(**fields), None])  # type: ignore[list-item, arg-type]  # what users send
    assert [isinstance(answer, errors.InvalidRequest) for answer in answers] == [True, False, True]
    assert "JobRequest(**fields)" in str(answers[0])
    assert (await worker.take_one()).handle == answers[1].handle  # type: ignore[union-attr]  # seen above


async def test_a_cancelled_job_ends_its_waiters(fleet: Fleet, worker: TinyWorker) -> None:
    job = await fleet.submit(model=MODEL, messages=CHAT)
    waiting = asyncio.create_task(job.result(timeout=5))
    assert await job.cancel() is State.QUEUED
    outcome = await waiting
    assert outcome.state is State.CANCELLED
    assert outcome.error is not None
    assert await job.cancel() is State.CANCELLED


async def test_unknown_jobs_and_bad_handles_have_their_errors(fleet: Fleet) -> None:
    with pytest.raises(errors.UnknownJob):
        await fleet.result("pool.0.t.nothing", timeout=1)
    with pytest.raises(errors.UnknownJob):
        await fleet.cancel("pool.0.t.nothing")
    with pytest.raises(errors.InvalidId):
        await fleet.job("no handle")


async def test_best_effort_is_asked_for(fleet: Fleet, worker: TinyWorker) -> None:
    plain, patient = [await fleet.submit(model=MODEL, messages=CHAT, best_effort=wish) for wish in (False, True)]
    assert [(await job.info()).record.spec.best_effort for job in (plain, patient)] == [False, True]
    with pytest.raises(errors.InvalidRequest, match="best_effort"):
        await fleet.submit(model=MODEL, messages=CHAT, best_effort=1)  # type: ignore[arg-type]  # as untyped callers do


async def test_info_shows_place_and_waits(fleet: Fleet, worker: TinyWorker) -> None:
    first = await fleet.submit(model=MODEL, messages=CHAT, stream=True)
    second = await fleet.submit(model=MODEL, messages=CHAT)
    assert [(await job.info()).place for job in (first, second)] == [0, 1]
    running, other = await worker.take()
    await running.say("a")
    await running.finish()
    info = await fleet.job(running.handle)
    assert info.place is None
    assert info.record.worker == "w1"
    assert info.queue_ms is not None
    assert info.ttft_ms is not None
    assert 0 <= info.queue_ms <= info.ttft_ms <= (info.total_ms or 0)
    assert (await fleet.job(other.handle)).ttft_ms is None
    await other.finish()


async def test_the_same_id_is_the_same_job_and_another_body_is_a_conflict(fleet: Fleet, worker: TinyWorker) -> None:
    first = await fleet.submit(model=MODEL, messages=CHAT, id="mine")
    # The order of members does not matter.
    again = await fleet.submit(body={"messages": CHAT, "model": MODEL}, id="mine")
    assert (first.created, again.created) == (True, False)
    assert first.handle == again.handle
    with pytest.raises(errors.ConflictingId):
        await fleet.submit(model=MODEL, messages=CHAT, id="mine", max_tokens=3)
    other_tenant = await fleet.submit(model=MODEL, messages=CHAT, id="mine", tenant="u")
    assert other_tenant.created


async def test_a_model_that_nobody_registered_is_refused_and_the_hint_names_the_known_ones(
    fleet: Fleet, worker: TinyWorker, redis: Redis
) -> None:
    with pytest.raises(errors.UnknownModel, match="Known models: m"):
        await fleet.submit(model="other", messages=CHAT)
    await run(redis, register("other", ModelRecord(pool="other-pool")))
    assert (await fleet.submit(model="other", messages=CHAT)).handle.shard.pool == "other-pool"


async def test_a_model_whose_workers_are_away_is_queued(fleet: Fleet, redis: Redis) -> None:
    await run(redis, register(MODEL, ModelRecord(pool=SHARD.pool)))
    job = await fleet.submit(model=MODEL, messages=CHAT)
    assert (await job.info()).record.state is State.QUEUED


async def test_a_full_queue_refuses_before_anything_is_stored(fleet: Fleet, worker: TinyWorker, redis: Redis) -> None:
    await run(redis, tick_as(limits=dict.fromkeys(Priority, 4)))
    jobs = await fleet.submit_many([JobRequest(model=MODEL, messages=CHAT) for _ in range(2)])
    assert [type(job) for job in jobs] == [Job, Job]
    before = await run(redis, Call(("KEYS", "*"), sorted))
    with pytest.raises(errors.QueueFull):  # one tenant has half of the lane
        await fleet.submit(model=MODEL, messages=CHAT)
    assert await run(redis, Call(("KEYS", "*"), sorted)) == before
    assert (await fleet.status()).shards[0].lanes[0].depth == 2


async def test_many_are_submitted_in_order_with_each_refusal_in_its_place(fleet: Fleet, worker: TinyWorker) -> None:
    requests = [JobRequest(model=MODEL, prompt=f"p{n}", id=f"j{n}", priority="medium") for n in range(1_100)]
    requests[3] = JobRequest(model=MODEL, prompt="", id="j3")
    requests[700] = JobRequest(model="nobody", prompt="x", id="j700")
    requests[900] = JobRequest(prompt="x", id="j900")
    answers = await fleet.submit_many(requests)
    assert [answer.handle.own_id for answer in answers if isinstance(answer, Job)] == [
        f"j{n}" for n in range(1_100) if n not in (3, 700, 900)
    ]
    refusals = [(n, type(answer)) for n, answer in enumerate(answers) if not isinstance(answer, Job)]
    assert refusals == [
        (3, errors.InvalidRequest),
        (700, errors.UnknownModel),
        (900, errors.InvalidRequest),
    ]
    assert (await fleet.status()).shards[0].lanes[1].depth == 1_097


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"priority": "urgent"}, "priority"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": datetime.now(UTC) - timedelta(hours=1)}, "deadline"),
        ({"deadline": datetime(2100, 1, 1)}, "deadline"),  # noqa: DTZ001 - the missing zone is the point
        ({"deadline": float("nan")}, "deadline"),
        ({"delay": -1}, "delay"),
        ({"delay": 20, "deadline": 10}, "delay"),
        ({"time_limit": True}, "time_limit"),
        ({"id": "a:b"}, "job id"),
        ({"tenant": "{x}"}, "tenant"),
        ({"reply_to": "a b"}, "reply name"),
        ({"endpoint": "/v1/other"}, "endpoint"),
        ({"max_tokens": 5_000}, "max_tokens"),
        ({"id": 5}, "job id"),
        ({"tenant": 5}, "tenant"),
        ({"body": [1]}, "body"),
        ({"messages": 5}, "messages"),
    ],
)
async def test_bad_options_are_refused_by_name(
    fleet: Fleet, worker: TinyWorker, options: dict[str, object], field: str
) -> None:
    with pytest.raises(errors.InvalidRequest, match=field):
        await fleet.submit(**{"model": MODEL, "messages": CHAT} | options)  # type: ignore[arg-type]  # wrong types are the point


async def test_a_delayed_job_waits_and_a_late_one_expires(fleet: Fleet, worker: TinyWorker) -> None:
    later = await fleet.submit(model=MODEL, messages=CHAT, delay=timedelta(hours=1), deadline=timedelta(hours=2))
    late = await fleet.submit(model=MODEL, messages=CHAT, deadline=0.001, time_limit=5)
    assert (await later.info()).record.state is State.DELAYED
    assert (await late.info()).record.spec.time_limit_s == 5
    async with serving(worker):
        assert (await late.result(timeout=5)).state is State.EXPIRED


async def test_status_shows_lanes_workers_and_what_is_due(fleet: Fleet, worker: TinyWorker) -> None:
    await fleet.submit(model=MODEL, messages=CHAT, priority="medium")
    await fleet.submit(model=MODEL, messages=CHAT, delay=60)
    status = await fleet.status()
    (shard,) = status.shards
    assert (shard.shard, shard.models, shard.due, shard.dead) == (SHARD, (MODEL,), 1, 0)
    assert [(lane.priority, lane.depth) for lane in shard.lanes] == [("high", 0), ("medium", 1), ("low", 0)]
    assert shard.lanes[0].oldest_wait_ms == 0
    assert shard.lanes[1].oldest_wait_ms >= 0
    assert [(w.id, w.label, w.slots) for w in shard.workers] == [("w1", "label-w1", 64)]
    assert shard.workers[0].lease_ms > status.now_ms


async def test_ready_waits_for_a_worker_with_a_lease(fleet: Fleet, redis: Redis) -> None:
    with pytest.raises(errors.WaitTimeout):
        await fleet.ready(MODEL, timeout=0.05)
    waiting = asyncio.create_task(fleet.ready(MODEL, timeout=5))
    await TinyWorker(redis).join()
    await waiting
    assert list(await fleet.models()) == [MODEL]


async def test_embeddings_are_not_streamed(fleet: Fleet, worker: TinyWorker) -> None:
    with pytest.raises(errors.InvalidRequest, match="stream"):
        await fleet.submit(model=MODEL, input="x", stream=True)


async def test_a_redis_that_stays_away_is_an_error_in_the_end() -> None:
    settings = Settings(redis_url=f"redis://127.0.0.1:{free_port()}", redis_patience_s=0.2)
    async with Fleet(settings=settings) as fleet:
        for call in (
            fleet.submit(model=MODEL, messages=CHAT),
            fleet.result("pool.0.t.a"),
            fleet.job("pool.0.t.a"),
            fleet.cancel("pool.0.t.a"),
            fleet.status(),
            fleet.models(),
        ):
            with pytest.raises(errors.StoreUnavailable):
                await call


async def test_a_redis_that_is_a_replica_for_a_while_is_waited_for(server: Server) -> None:
    """As after a failover, before the new primary is one."""
    replica = Call(("REPLICAOF", "127.0.0.1", free_port()), bool)
    primary = Call(("REPLICAOF", "NO", "ONE"), bool)
    async with Fleet(server.url, tenant="t", settings=Settings(redis_patience_s=0.2)) as fleet:
        await TinyWorker(fleet.redis).join()
        await run(fleet.redis, replica)
        requests = [JobRequest(model=MODEL, messages=CHAT), JobRequest(model=MODEL, prompt="")]
        refused, bad = await fleet.submit_many(requests)
        assert isinstance(refused, errors.StoreUnavailable)
        assert isinstance(bad, errors.InvalidRequest)
        waiting = asyncio.create_task(fleet.submit_many(requests, patience_s=10))
        await run(fleet.redis, primary)
        accepted, bad = await waiting
        assert isinstance(accepted, Job)
        assert isinstance(bad, errors.InvalidRequest)


async def test_nothing_that_users_send_or_get_is_logged(
    fleet: Fleet, worker: TinyWorker, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    canary = [{"role": "user", "content": "canary-7261"}]
    with pytest.raises(errors.InvalidRequest) as refused:
        await fleet.submit(model=MODEL, messages=canary, temperature="canary-7261")
    job = await fleet.submit(model=MODEL, messages=canary)
    async with serving(worker):
        await job.result(timeout=5)
    told = [str(refused.value), repr(refused.value), *capfd.readouterr(), caplog.text]
    assert not any("canary-7261" in text for text in told)


async def test_what_opens_the_settings_redis_is_not_sent_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFLEET_REDIS_PASSWORD", "hush")
    async with Fleet("redis://other:1") as client:
        assert client.redis.connection_pool.connection_kwargs.get("password") is None
    async with Fleet() as client:
        assert client.redis.connection_pool.connection_kwargs["password"] == "hush"
