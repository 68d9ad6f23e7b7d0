"""What was written into Redis by hand blocks nobody: scheduler and worker go on, and who looks gets an answer."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import fakeredis
import pytest
from hypothesis import example, given
from redis.asyncio import Redis

from producer.batch.service import chores
from producer.batch.service.owner import Owner, Terms
from producer.batch.store import FileStore
from producer.dead import list_dead, read_dead
from producer.fleet import Fleet
from producer.overview_reader import OverviewReader
from producer.workers import read_roster
from protocol import functions, keys, library, reads
from protocol.batches import BatchChange, BatchSpec, BatchStatus
from protocol.call import run
from protocol.clock import SystemClock
from protocol.errors import FleetError, UnknownBatch
from protocol.functions import register
from protocol.handle import Handle
from protocol.log import get_logger
from protocol.messages import InboxEntry, ModelRecord
from protocol.settings import Settings
from protocol.states import Priority, State
from protocol.wire import JsonObject
from scheduler.look import look
from scheduler.outage import Outage
from scheduler.rules import rules_of
from scheduler.shard_loop import ShardLoop
from tests.input.hand import BATCH, BATCH_LISTS, BROKEN, GOOD_BATCH, WORKER, Command, write, writings
from tests.support.builders import SHARD, join_worker
from tests.support.fuzz import examples
from tests.worker.stage import END, word
from worker.attempt import Runner
from worker.attempts import Attempts
from worker.engine.base import Capacity, EngineRequest
from worker.inbox import Inbox
from worker.outbox import Outbox
from worker.refusals import Refusals

SETTINGS = Settings(tick_s=0.01, window_s=0, redis_patience_s=0.2)
ROUNDS = 40
STEPS_S = 10


class Engine:
    """Answers everything with a word."""

    async def generate(self, _: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        yield word("done")
        yield END

    async def tokenize(self, _: EngineRequest) -> list[int]:
        return []

    def prefixes(self) -> frozenset[str]:
        return frozenset()


@pytest.fixture(scope="module")
def fake() -> Iterator[fakeredis.FakeServer]:
    server = fakeredis.FakeServer()
    with fakeredis.FakeRedis(server=server) as client:
        client.function_load(library.source(), replace=True)
        yield server


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> FileStore:
    return FileStore(tmp_path_factory.mktemp("files"))


@asynccontextmanager
async def emptied(fake: fakeredis.FakeServer) -> AsyncIterator[Redis]:
    """An empty Redis whose one model has two workers."""
    redis = fakeredis.FakeAsyncRedis(server=fake)
    await redis.flushall()
    await run(redis, register("m", ModelRecord(pool=SHARD.pool)))
    for worker in (WORKER, "w2"):
        await run(redis, join_worker(worker))
    try:
        yield redis
    finally:
        await redis.aclose()


async def dispatched(redis: Redis, submit: Fleet) -> str:
    """Rounds of a real scheduler until a good job was assigned: the name of its worker."""
    loop = ShardLoop(redis, SHARD, rules_of(SETTINGS), Outage(get_logger("test")))
    handle: Handle | None = None
    for _ in range(ROUNDS):
        # A worker comes back, whatever became of its lease and its model's record.
        with suppress(FleetError):
            await run(redis, register("m", ModelRecord(pool=SHARD.pool)))
            await run(redis, join_worker("w2"))
        # As the loop goes on after a failure, but without its pauses.
        try:
            loop._next_tick = 0.0
            await loop._step()
        except FleetError:
            if loop._term:
                loop._term.forget()
        with suppress(FleetError):
            handle = handle or (await submit.submit(model="m", prompt="x", id="good", tenant="good")).handle
        if handle and (record := await run(redis, reads.job_record(handle))) and record.state is State.ASSIGNED:
            return record.worker
    raise AssertionError("the good job was not assigned")


async def looked_at(redis: Redis, fleet: Fleet) -> None:
    """All that people look at: an answer, or a typed error."""
    for ask in (
        fleet.status,
        lambda: fleet.job(BROKEN),
        lambda: fleet.result(BROKEN, timeout=0.001),
        lambda: anext(fleet.follow(BROKEN)),
        fleet.models,
        lambda: list_dead(redis),
        lambda: read_dead(redis, BROKEN, body=True),
        lambda: read_roster(redis),
        lambda: look(redis, SHARD),
        lambda: fleet.replay(BROKEN),
        lambda: fleet.cancel(BROKEN),
        fleet.batches.list,
        lambda: fleet.batches.get(BATCH.id),
        lambda: fleet.batches.cancel(BATCH.id),
        lambda: anext(fleet.batches.watch(BATCH.id)),
        lambda: OverviewReader(redis).look(),
        lambda: chores.living(redis),
        lambda: fleet.submit(model="m", prompt="x", id=BROKEN.own_id, tenant=BROKEN.tenant),
    ):
        with suppress(FleetError, TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(0.02):
                await ask()


async def worked(redis: Redis, worker: str) -> None:
    """A real inbox, attempts and outbox of `worker`: the good job gets its result."""
    handle, clock = Handle(SHARD, "good", "good"), SystemClock()
    attempts = Attempts(redis, SHARD, worker, clock, lambda: True, lambda: None)
    outbox = Outbox(redis, 0, attempts.over)
    refusals = Refusals(clock, lambda: None)
    runner = Runner(Engine(), lambda: Capacity(4), outbox, 3, clock, attempts.spoke, refusals)  # type: ignore[arg-type]  # what a runner needs of an engine
    attempts.serve(runner, outbox, 60, frozenset)

    async def take(entries: list[InboxEntry]) -> None:
        await attempts.take([entry for entry in entries if entry.kind == "assign"])

    inbox = Inbox(redis, SHARD, worker, take, clock)  # type: ignore[arg-type]  # a list is a sequence
    tasks = [asyncio.create_task(part.run()) for part in (inbox, outbox)]
    try:
        async with asyncio.timeout(STEPS_S):
            while await run(redis, reads.outcome(handle)) is None:
                assert not any(task.done() for task in tasks)
                await asyncio.sleep(0)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await attempts.close()


async def batched(redis: Redis, files: FileStore) -> None:
    """A real runner's looks and moves: the good batch is found, owned, ended, told, seen and at last deleted."""
    terms, good = Terms(keep_s=60, notify=True), Fleet(redis=redis, tenant=GOOD_BATCH.tenant, settings=SETTINGS)
    await run(redis, functions.batch_create(GOOD_BATCH, BatchSpec(input_file_id="file-0", endpoint="/v1/completions")))
    found = [await Owner.take(redis, name, terms) for name in (await chores.due(redis)).idle]
    (owner,) = [owner for owner in found if owner and owner.name == GOOD_BATCH]
    await chores.clean(redis, files, terms.keep_s)
    assert [record.name for record in await good.batches.list()] == [GOOD_BATCH]
    for status in (BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.COMPLETED):
        await owner.write(BatchChange(status))
    assert GOOD_BATCH in (await chores.due(redis)).untold
    now_ms = await run(redis, reads.store_time_ms())
    await chores.clean(redis, files, terms.keep_s, now_ms + 120_000)
    assert await good.batches.list() == []
    with pytest.raises(UnknownBatch):
        await good.batches.get(GOOD_BATCH.id)


async def scenario(fake: fakeredis.FakeServer, files: FileStore, commands: list[Command]) -> None:
    async with emptied(fake) as redis, Fleet(redis=redis, settings=SETTINGS) as fleet:
        await write(redis, commands)
        await looked_at(redis, fleet)
        await write(redis, commands)
        worker = await dispatched(redis, fleet)
        await looked_at(redis, fleet)
        await worked(redis, worker)
        await batched(redis, files)


@examples(40)
@example([("XADD", keys.inbox(SHARD, WORKER), "*", "k", "assign")])
@example([("ZADD", keys.workers(SHARD), float("inf"), "ghost")])
@example([("ZADD", keys.due(SHARD), float("inf"), "t:ghost")])
@example([("HSET", keys.clock(SHARD), "attempt", "x", "seq", "inf", "vt:high", "nan")])
@example([("SET", keys.lane(SHARD, Priority.HIGH), "x")])
@example([("DEL", keys.workers(SHARD)), ("SET", keys.workers(SHARD), "x")])
@example([("DEL", keys.LIVING_BATCHES), ("SET", keys.LIVING_BATCHES, "x")])
@example([("ZADD", keys.LIVING_BATCHES, -1.0, f"garbage {n}") for n in range(150)])
@example([("SET", keys.batch(BATCH), "x"), *(("ZADD", key, 0.0, BATCH.ref) for key in BATCH_LISTS)])
@given(writings)
def test_nothing_written_by_hand_blocks_a_role(
    fake: fakeredis.FakeServer, files: FileStore, commands: list[Command]
) -> None:
    asyncio.run(scenario(fake, files, commands))
