"""Records and lists of batches that a hand wrote: each stops nobody but itself."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from producer.batch.service import chores
from producer.batch.service.serve import serve
from producer.batch.store import FileStore
from producer.fleet import Fleet
from protocol import functions, keys, reads
from protocol.batches import BatchName, BatchStatus
from protocol.call import Call, run
from protocol.errors import Unreadable
from tests.producer.batch_files import row
from tests.producer.served import TERMS, seen, submitted
from tests.producer.tiny import TinyWorker, serving

BAD = BatchName("t", "batch_bad")
Written = tuple[str | bytes, ...]
BY_HAND: dict[str, Written] = {
    "no state": ("HSET", keys.batch(BAD), "x", "y"),
    "another state": ("HSET", keys.batch(BAD), "status", "odd", "spec", "{}", "at:validating", "1"),
    "no description": ("HSET", keys.batch(BAD), "status", "validating", "at:validating", "1"),
    "bytes": ("HSET", keys.batch(BAD), "status", "in_progress", "spec", b"\xff", "at:validating", "1"),
    "another type": ("SET", keys.batch(BAD), "x"),
}
FAR_S = 10 * 366 * 86_400


async def listed_everywhere(redis: Redis, command: Written) -> None:
    """What a hand wrote, before all that is sound."""
    await run(redis, Call(command, lambda reply: reply))
    for key in (keys.LIVING_BATCHES, keys.ENDED_BATCHES, keys.BATCH_HOOKS):
        await redis.zadd(key, {BAD.ref: -1})
    await redis.zadd(keys.batches("t"), {BAD.id: 1e15})


async def nowhere(redis: Redis) -> bool:
    lists = (keys.LIVING_BATCHES, keys.ENDED_BATCHES, keys.BATCH_HOOKS)
    found = [await redis.zscore(key, BAD.ref) for key in lists]
    return not any(score is not None for score in [*found, await redis.zscore(keys.batches("t"), BAD.id)])


async def swept(redis: Redis, store: FileStore, fleet: Fleet) -> None:
    """What a runner does with what nobody owns."""
    for name in (await chores.due(redis)).idle:
        await serve(fleet, store, name, TERMS)


@pytest.mark.parametrize("kind", BY_HAND)
async def test_a_record_by_hand_hides_no_other(stored: Fleet, store: FileStore, source: Path, kind: str) -> None:
    names = [await submitted(stored, source, row("a")) for _ in range(3)]
    await listed_everywhere(stored.redis, BY_HAND[kind])
    assert {record.name for record in await stored.batches.list()} == set(names)
    # The bad one stands first: a page goes on behind it.
    assert len(await stored.batches.list(limit=1)) == 1
    with pytest.raises(Unreadable):
        await stored.batches.get(BAD.id)
    await stored.redis.delete(keys.batch(BAD))


@pytest.mark.parametrize("kind", BY_HAND)
async def test_a_record_by_hand_is_put_away_by_whoever_would_run_it(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path, kind: str
) -> None:
    name = await submitted(stored, source, row("a", "say a"))
    await listed_everywhere(redis, BY_HAND[kind])
    with capture_logs() as lines:
        async with serving(worker):
            await swept(redis, store, stored)
    assert (await seen(stored, name)).status is BatchStatus.COMPLETED
    assert [line["key"] for line in lines if line["event"] == "batch_unreadable"] == [keys.batch(BAD)]
    assert await nowhere(redis)
    assert 0 < await redis.pttl(keys.batch(BAD)) <= 7 * 86_400_000
    assert BAD not in (await chores.due(redis)).idle
    await redis.delete(keys.batch(BAD))


@pytest.mark.parametrize("kind", BY_HAND)
async def test_a_record_by_hand_stops_no_retention(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path, kind: str
) -> None:
    name = await submitted(stored, source, row("a", "say a"))
    async with serving(worker):
        await serve(stored, store, name, TERMS)
    await listed_everywhere(redis, BY_HAND[kind])
    with store.workplace(BAD).held():
        pass
    now_ms = await run(redis, reads.store_time_ms())
    assert await chores.clean(redis, store, TERMS.keep_s, now_ms + FAR_S * 1000)
    assert (await stored.batches.list(), store.list("t")) == ([], [])
    assert await nowhere(redis)
    await redis.delete(keys.batch(BAD))
    await chores.clean(redis, store, TERMS.keep_s, now_ms)
    assert list(store.workplaces()) == []


async def test_names_by_hand_hide_no_batch_and_go(stored: Fleet, redis: Redis, source: Path) -> None:
    """More than are looked at once, before all others; and leases without an end."""
    name = await submitted(stored, source, row("a"))
    garbage = {f"garbage {n}".encode(): -1.0 for n in range(150)} | {b"\xff:\xfe": -2.0, b"x": float("inf")}
    for key in (keys.LIVING_BATCHES, keys.ENDED_BATCHES, keys.BATCH_HOOKS, keys.batches("t")):
        await redis.zadd(key, garbage)
    with capture_logs() as lines:
        assert (await chores.due(redis)).idle == [name]
    assert sum(line["count"] for line in lines) == 303
    assert await redis.zcard(keys.LIVING_BATCHES) == 1
    assert [record.name for record in await stored.batches.list()] == [name]
    assert await redis.zcard(keys.batches("t")) == 1
    await redis.zadd(keys.LIVING_BATCHES, {name.ref: float("inf")})
    assert (await chores.due(redis)).idle == [name]
    assert await run(redis, functions.batch_take(name, "mine", 5_000)) == 1
    await redis.delete(keys.ENDED_BATCHES, keys.BATCH_HOOKS)


async def test_a_living_batch_among_the_ended_leaves_their_list(stored: Fleet, store: FileStore, source: Path) -> None:
    """Else a hundred of them would be all that the clean-up looks at."""
    name = await submitted(stored, source, row("a"))
    for key in (keys.ENDED_BATCHES, keys.BATCH_HOOKS):
        await stored.redis.zadd(key, {name.ref: -1})
    await chores.clean(stored.redis, store, TERMS.keep_s)
    assert (await seen(stored, name)).status is BatchStatus.VALIDATING
    assert not await stored.redis.exists(keys.ENDED_BATCHES, keys.BATCH_HOOKS)
    assert (await chores.due(stored.redis)).idle == [name]


LISTS = [keys.LIVING_BATCHES, keys.ENDED_BATCHES, keys.BATCH_HOOKS, keys.batches("t")]


@pytest.mark.parametrize("key", LISTS)
async def test_a_list_of_another_type_stops_no_batch(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path, key: str
) -> None:
    """Each is set apart by the move that writes there: one that begins a batch, or one that ends it."""
    await redis.set(key, "x")
    assert await stored.batches.list() == []
    await chores.clean(redis, store, TERMS.keep_s)
    assert (await chores.due(redis)).untold == []
    name = await submitted(stored, source, row("a", "say a"))
    async with serving(worker):
        await swept(redis, store, stored)
    assert (await seen(stored, name)).status is BatchStatus.COMPLETED
    assert [record.name for record in await stored.batches.list()] == [name]
    assert await redis.get(f"{key}:apart") == b"x"
    assert await run(redis, Call(("TYPE", key), bytes.decode)) in ("zset", "none")


MOVES: dict[str, Callable[[Fleet], Awaitable[object]]] = {
    "cancel": lambda fleet: run(fleet.redis, functions.batch_cancel(BAD)),
    "drop": lambda fleet: run(fleet.redis, functions.batch_drop(BAD)),
    "release": lambda fleet: run(fleet.redis, functions.batch_release(functions.BatchLease(BAD, "mine", 5_000))),
}


@pytest.mark.parametrize("move", MOVES)
async def test_a_move_on_a_key_of_another_type_finds_no_batch(stored: Fleet, move: str) -> None:
    await stored.redis.set(keys.batch(BAD), "x")
    assert await MOVES[move](stored) in (None, False, True)
    await stored.redis.delete(keys.batch(BAD))
