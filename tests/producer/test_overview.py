"""A look at the whole fleet for live views: what it finds on each kind of Redis, and whose jobs it shows."""

from itertools import count
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.overview_reader import BATCHES_SHOWN, ENDED_KEPT_MS, JOBS_SHOWN, OverviewReader
from producer.scope import Scope
from protocol import access, functions, keys, store, wire
from protocol.batches import BatchChange, BatchCounts, BatchName, BatchSpec, BatchStatus
from protocol.call import run
from protocol.errors import NotAllowed, StoreUnavailable
from protocol.functions import BatchLease
from protocol.handle import Shard
from protocol.messages import ModelRecord
from protocol.outlook import Outlook, publish
from protocol.states import Priority
from tests.support.builders import LEASE_MS, SHARD, a_handle, join_worker
from tests.support.driver import Driver
from tests.support.servers import free_port
from tests.support.store_clock import StoreClock

BATCH = BatchName("t", "batch_1")
HUGE = "9" * 30
"""No time of ours, and more than JSON's writer takes."""
BY_HAND = {
    "batch_timeless": ("model", "m"),
    "batch_huge": ("at:validating", HUGE),
    "batch_odd": ("at:in_progress", "soon"),
}
SPEC = BatchSpec(input_file_id="file-1", endpoint="/v1/completions", model="m")
TURNED = pytest.mark.parametrize("backend", ["fake"], indirect=True)
"""Redis's own time is turned: a real server only lets what is stored grow older."""
LEASE = BatchLease(BATCH, "me", 60_000)


@pytest.fixture
async def registered(redis: Redis, driver: Driver) -> Driver:
    await run(redis, functions.register("m", ModelRecord(pool="pool")))
    return driver


async def test_an_empty_redis_has_nothing(redis: Redis) -> None:
    seen = await OverviewReader(redis).look()
    assert (seen.shards, seen.batches, seen.dead, seen.tokens_per_s) == ((), (), 0, None)
    assert seen.to_json()["first_tokens"] == {"count": 0, "p50_ms": None, "p95_ms": None}


@TURNED
async def test_lanes_workers_and_their_jobs(registered: Driver, redis: Redis, store_clock: StoreClock) -> None:
    handle, _ = registered.running("a")
    registered.submit("b", tenant="u")
    registered.restarted(a_handle("b", "u"))
    registered.submit("low", priority=Priority.LOW)
    store_clock.advance(700)
    registered.lead()
    registered.submit("low-2", priority=Priority.LOW)
    registered.join(join=False, running=2, waiting=1, capacity=4, load_score=0.5, kv_used_tokens=1, kv_total_tokens=4)
    (shard,) = (await OverviewReader(redis).look()).shards
    high, _, low = shard.lanes
    assert (high.depth, high.oldest_wait_ms, low.depth) == (0, 0, 2)
    assert 700 <= low.oldest_wait_ms < 5_000
    assert (shard.shard, shard.models, shard.led, shard.due, shard.dead) == (SHARD, ("m",), True, 0, 0)
    (worker,) = shard.workers
    assert (worker.label, worker.state, worker.slots, worker.held) == ("label-w1", "active", 4, 2)
    assert (worker.running, worker.waiting, worker.capacity, worker.load_score, worker.kv) == (2, 1, 4, 0.5, 0.25)
    assert worker.jobs == (handle, a_handle("b", "u"))


async def test_a_viewer_sees_the_own_tenants_jobs_and_batches_alone(registered: Driver, redis: Redis) -> None:
    registered.running("a")
    registered.submit("secret", tenant="u")
    registered.assign(a_handle("secret", "u"))
    registered.run(functions.batch_create(BATCH, SPEC))
    registered.run(functions.batch_create(BatchName("u", "batch_2"), SPEC))
    seen = await OverviewReader(redis).look()
    own = seen.seen_by(Scope("t"))
    assert seen.seen_by(Scope()) is seen
    assert [len(view.shards[0].workers[0].jobs) for view in (seen, own)] == [2, 1]
    assert [batch.id for batch in own.batches] == ["batch_1"]
    text = wire.dumps(own.to_json())
    assert b"secret" not in text
    assert b"batch_2" not in text
    assert own.shards[0].workers[0].held == 2
    for batch in ("t:batch_1", "u:batch_2"):
        registered.run(functions.batch_cancel(BatchName.parse(batch)))


@TURNED
async def test_speed_comes_of_two_looks(registered: Driver, redis: Redis, store_clock: StoreClock) -> None:
    reader = OverviewReader(redis)
    registered.join(generated_tokens=100, firsts=[(1, 40)])
    assert (await reader.look()).tokens_per_s is None
    store_clock.advance(1_000)
    registered.join(join=False, generated_tokens=600, firsts=[(1, 40), (2, 60)])
    seen = await reader.look()
    assert seen.tokens_per_s == pytest.approx(500, rel=0.1)
    assert (seen.first_tokens.count, seen.first_tokens.p50_ms, seen.first_tokens.p95_ms) == (2, 40, 60)


@TURNED
async def test_a_shard_without_a_leader_says_so(registered: Driver, redis: Redis, store_clock: StoreClock) -> None:
    reader = OverviewReader(redis)
    registered.lead()
    (lane,) = (await reader.look()).shards
    registered.run(publish(SHARD, Outlook(at_ms=(await reader.look()).now_ms, policy="p", workers_wanted=3)))
    (led,) = (await reader.look()).shards
    assert (lane.led, led.led, led.policy, led.workers_wanted) == (True, True, "p", 3)
    store_clock.advance(60_000)
    seen = await reader.look()
    assert (seen.unled, seen.shards[0].policy, seen.shards[0].workers_wanted) == ((SHARD,), "", None)


async def test_a_worker_whose_lease_is_over_is_lost(registered: Driver, redis: Redis, store_clock: StoreClock) -> None:
    registered.join()
    store_clock.advance(LEASE_MS + 1)
    assert [worker.state for worker in (await OverviewReader(redis).look()).shards[0].workers] == ["lost"]


@TURNED
async def test_a_batch_has_progress_and_an_end_in_sight(driver: Driver, redis: Redis, store_clock: StoreClock) -> None:
    reader = OverviewReader(redis)

    def write(status: BatchStatus | None, done: int) -> None:
        counts = BatchCounts(total=100, completed=done)
        driver.run(functions.batch_write(LEASE, BatchChange(status, counts=counts), ENDED_KEPT_MS * 2, notify=False))

    driver.run(functions.batch_create(BATCH, SPEC))
    driver.run(functions.batch_take(BATCH, LEASE.token, LEASE.lease_ms))
    write(BatchStatus.IN_PROGRESS, 0)
    assert [batch.left_s for batch in (await reader.look()).batches] == [None]
    store_clock.advance(6_000)
    write(None, 20)
    (batch,) = (await reader.look()).batches
    assert (batch.rows, batch.completed, batch.model, batch.ended_ms) == (100, 20, "m", 0)
    assert batch.left_s == pytest.approx(24, rel=0.1)
    assert [again.left_s for again in (await OverviewReader(redis).look()).batches] == [pytest.approx(24, rel=0.1)]
    write(BatchStatus.FINALIZING, 100)
    write(BatchStatus.COMPLETED, 100)
    (batch,) = (await reader.look()).batches
    assert (batch.status, batch.left_s, batch.ended_ms > 0) == (BatchStatus.COMPLETED, None, True)
    assert (await OverviewReader(redis).look()).batches == ()
    store_clock.advance(ENDED_KEPT_MS + 1)
    assert (await reader.look()).batches == ()


async def test_what_was_written_by_hand_hides_nothing(registered: Driver, redis: Redis) -> None:
    registered.running("a")
    registered.join("w2")
    await redis.xadd(keys.inbox(SHARD, "w1"), {"k": "assign", "j": "\x1b"})
    await redis.set(keys.inbox(SHARD, "w3"), "text")
    registered.join("w3")
    await redis.hset(keys.worker(SHARD, "w2"), "report", "{")  # type: ignore[misc]  # redis-py's sync and async types
    registered.submit("huge")
    await redis.hset(keys.job(a_handle("huge")), "submitted", HUGE)  # type: ignore[misc]  # as above
    registered.join("w4")
    await redis.hset(keys.worker(SHARD, "w4"), "at", f"-{HUGE}")  # type: ignore[misc]  # as above
    for name, (field, value) in BY_HAND.items():
        registered.run(functions.batch_create(BatchName("t", name), SPEC))
        await redis.hset(keys.batch(BatchName("t", name)), field, value)  # type: ignore[misc]  # as above
    await redis.hdel(keys.batch(BatchName("t", "batch_timeless")), "at:validating")  # type: ignore[misc]  # as above
    registered.run(functions.batch_create(BATCH, SPEC))
    await redis.zadd(keys.LIVING_BATCHES, {"no-batch": 1})
    seen = await OverviewReader(redis).look()
    assert [(worker.id, len(worker.jobs)) for worker in seen.shards[0].workers] == [("w1", 1), ("w3", 0)]
    assert [batch.id for batch in seen.batches] == [BATCH.id]
    assert seen.shards[0].lanes[0].depth == 1
    assert wire.dumps(seen.to_json())
    # Nothing that stands there keeps the rules.
    await redis.flushdb()


async def test_a_look_takes_three_round_trips_whatever_there_is(
    registered: Driver, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, trips = redis.pipeline, count()

    def counted(**how: Any) -> Any:
        next(trips)
        return plain(**how)

    monkeypatch.setattr(redis, "pipeline", counted)
    for shard in (SHARD, Shard("other")):
        registered.run(functions.register(shard.pool, ModelRecord(pool=shard.pool)))
        for number in range(3):
            registered.run(join_worker(f"w{number}", shard=shard))
    assert len((await OverviewReader(redis).look()).shards) == 2
    assert next(trips) == 3


async def test_a_long_inbox_is_read_in_part(registered: Driver, redis: Redis) -> None:
    registered.lead()
    registered.join(slots=100)
    jobs = [registered.submit(f"j{number}").handle for number in range(JOBS_SHOWN + 5)]
    registered.assign_all(jobs)
    (worker,) = (await OverviewReader(redis).look()).shards[0].workers
    assert (worker.held, worker.jobs) == (len(jobs), tuple(jobs[:JOBS_SHOWN]))


async def test_many_batches_are_shown_in_part(driver: Driver, redis: Redis) -> None:
    names = [BatchName("t", f"batch_{number}") for number in range(BATCHES_SHOWN + 2)]
    for name in names:
        driver.run(functions.batch_create(name, SPEC))
    assert len((await OverviewReader(redis).look()).batches) == BATCHES_SHOWN
    for name in names:
        driver.run(functions.batch_cancel(name))


@TURNED
async def test_of_batches_that_take_turns_no_more_are_shown(
    driver: Driver, redis: Redis, store_clock: StoreClock
) -> None:
    reader = OverviewReader(redis)
    names = [BatchName("t", f"batch_{number}") for number in range(BATCHES_SHOWN + 10)]
    for name in names:
        driver.run(functions.batch_create(name, SPEC))
        store_clock.advance(1)
    for name in names[:BATCHES_SHOWN]:
        driver.run(functions.batch_take(name, "me", 60_000))
    assert {batch.id for batch in (await reader.look()).batches} == {name.id for name in names[:BATCHES_SHOWN]}
    for name in names[BATCHES_SHOWN:]:
        driver.run(functions.batch_take(name, "me", 90_000))
    seen = [batch.id for batch in (await reader.look()).batches]
    assert seen == [name.id for name in names[10:]][::-1]


async def test_a_tenants_own_redis_user_may_not_look(real_driver: Driver, redis_url: str) -> None:
    """Its rights are its own jobs': lanes and workers' inboxes are others' too."""
    rules = ("reset", "on", ">pw", *access.producer("t").rules.split())
    real_driver.redis.execute_command("ACL", "SETUSER", "tenant", *rules)  # type: ignore[no-untyped-call]  # redis-py 5
    real_driver.run(functions.register("m", ModelRecord(pool="pool")))
    limited = store.connect(redis_url.replace("redis://", "redis://tenant:pw@"))
    with pytest.raises(NotAllowed):
        await OverviewReader(limited).look()
    await limited.aclose()
    real_driver.redis.execute_command("ACL", "DELUSER", "tenant")  # type: ignore[no-untyped-call]  # as above


async def test_a_redis_that_is_away_is_told() -> None:
    nobody = store.connect(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(StoreUnavailable):
        await OverviewReader(nobody).look()
    await nobody.aclose()
