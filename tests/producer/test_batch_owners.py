"""The owners of a batch: handed over, killed, lost, paused; whatever happens, it is brought to its end once."""

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch.ledger import Ledger
from producer.batch.service.owner import Owner
from producer.batch.service.serve import serve
from producer.batch.store import FileStore
from producer.fleet import Fleet
from producer.jobs import Job
from producer.requests import JobRequest
from protocol import batch_reads, functions, keys, reads
from protocol.batches import BatchChange, BatchStatus
from protocol.call import Call, run
from protocol.errors import FleetError
from protocol.states import Priority
from tests.producer.batch_files import leftovers, row, until_queued
from tests.producer.batch_runs import counting
from tests.producer.served import TERMS, counts, lines, owned, seen, submitted
from tests.producer.tiny import TinyWorker, serving
from tests.support.waiting import eventually


async def test_what_is_handed_over_goes_on_with_its_jobs(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(stored, source, *(row(f"r{n}", f"say {n}") for n in range(8)))
    async with owned(stored, store, name) as first:
        await until_queued(redis, 8)
        attempts = await worker.take()
        for attempt in attempts[:3]:
            await attempt.echo()

        async def told() -> bool:
            return (await seen(stored, name)).counts.completed == 3

        await eventually(told)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    now_ms = await run(redis, reads.store_time_ms())
    assert await run(redis, batch_reads.idle_batches(now_ms)) == [name]
    async with owned(stored, store, name) as second:
        for attempt in attempts[3:]:
            await attempt.echo()
        await eventually(second.done)
    record = await seen(stored, name)
    assert (record.status, counts(record), record.takes) == (BatchStatus.COMPLETED, (8, 8, 0), 2)
    assert len(await lines(stored, name)) == 8
    # The second owner ran nothing anew.
    assert await worker.take() == []


async def test_rows_that_fail_while_the_next_owner_submits_them_run_once(
    stored: Fleet,
    store: FileStore,
    worker: TinyWorker,
    redis: Redis,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = await submitted(stored, source, *(row(f"r{n}", f"say {n}") for n in range(4)))
    async with owned(stored, store, name):
        await until_queued(redis, 4)
        attempts = await worker.take()
    submit_many = Fleet.submit_many

    async def late(self: Fleet, requests: Iterable[JobRequest], **how: Any) -> list[Job | FleetError]:
        for attempt in attempts:
            await attempt.fail("engine_error")
        return await submit_many(self, requests, **how)

    monkeypatch.setattr(Fleet, "submit_many", late)
    async with counting(worker) as prompts:
        await serve(stored, store, name, TERMS)
    record = await seen(stored, name)
    assert (record.status, counts(record), prompts) == (BatchStatus.COMPLETED, (4, 0, 4), [])
    assert len(await lines(stored, name)) == 4
    assert await leftovers(redis) == []


async def test_cancelled_between_two_owners_withdraws_what_the_first_had_sent(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(stored, source, *(row(f"r{n}", f"say {n}") for n in range(6)))
    async with owned(stored, store, name):
        await until_queued(redis, 6)
        held = (await worker.take())[0]
    await stored.batches.cancel(name.id)
    await serve(stored, store, name, TERMS)
    assert ((await seen(stored, name)).status, await leftovers(redis)) == (BatchStatus.CANCELLED, [])
    with pytest.raises(AssertionError):
        await held.echo()


async def test_killed_while_it_validates(stored: Fleet, store: FileStore, worker: TinyWorker, source: Path) -> None:
    """The next owner finds what the last one has left of it, and begins anew."""
    name = await submitted(stored, source, row("a", "say a"))
    with store.workplace(name).held():
        Ledger.create(f"{store.workplace(name).output}.state.new").close()
    async with serving(worker):
        await serve(stored, store, name, TERMS)
    assert (await seen(stored, name)).status is BatchStatus.COMPLETED
    assert set(await lines(stored, name)) == {"a"}


async def test_two_at_once_are_one(stored: Fleet, store: FileStore, worker: TinyWorker, source: Path) -> None:
    name = await submitted(stored, source, *(row(f"r{n}", f"say {n}") for n in range(8)))
    async with serving(worker):
        await asyncio.gather(*(serve(stored, store, name, TERMS) for _ in range(3)))
    record = await seen(stored, name)
    assert (counts(record), record.takes) == ((8, 8, 0), 1)


async def test_an_owner_that_has_lost_it_writes_nothing_and_leaves_the_jobs(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(stored, source, *(row(f"r{n}", f"say {n}") for n in range(4)))
    async with owned(stored, store, name) as first:
        await until_queued(redis, 4)
        # As when the first one stood still for longer than its lease.
        await run(redis, functions.batch_take(name, "nobody", 1))
        await run(redis, Call(("HSET", keys.batch(name), "token", "other"), int))
        await eventually(first.done)
    assert (await seen(stored, name)).status is BatchStatus.IN_PROGRESS
    assert await run(redis, reads.lane_depth(worker.shard, Priority.MEDIUM)) == 4
    assert not store.workplace(name).output.read_bytes()


async def test_a_crash_between_the_states_of_its_end(
    stored: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    """Its owner dies when the output is in the store, and nobody was told yet."""
    name = await submitted(stored, source, row("a", "say a"))
    owner = await Owner.take(stored.redis, name, TERMS)
    assert owner
    place = store.workplace(name)
    with place.held():
        place.output.write_bytes(b'{"custom_id":"a"}\n')
    for status in (BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING):
        await owner.write(BatchChange(status))
    store.adopt(name, "output", place.output)
    await owner.release()
    await serve(stored, store, name, TERMS)
    record = await seen(stored, name)
    assert record.status is BatchStatus.COMPLETED
    assert set(await lines(stored, name)) == {"a"}
    assert len(store.list("t")) == 2


@pytest.mark.parametrize("mounted", [False, True], ids=["no folder", "an empty mount point"])
async def test_a_store_that_has_gone_pauses_the_batch(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path, tmp_path: Path, *, mounted: bool
) -> None:
    """As a disk that is not mounted: neither before nor after its rows ran does the batch end without its files."""
    name = await submitted(stored, source, row("a", "say a"))
    away = store.folder.rename(tmp_path / "away")
    if mounted:
        store.folder.mkdir()
    assert await serve(stored, store, name, TERMS) is None
    assert mounted or not store.folder.exists(), "nobody makes it anew"
    assert not mounted or not list(store.folder.iterdir())
    away.rename(store.folder)
    async with owned(stored, store, name) as task:
        await until_queued(redis, 1)
        store.folder.rename(away)
        if mounted:
            store.folder.mkdir()
        for attempt in await worker.take():
            await attempt.echo()
        assert await task is None
    assert not (await seen(stored, name)).status.terminal
    if mounted:
        shutil.rmtree(store.folder)  # What the run has left there.
    away.rename(store.folder)
    assert await serve(stored, store, name, TERMS) is BatchStatus.COMPLETED
    assert [line["custom_id"] async for line in stored.batches.results(name.id)] == ["a"]


async def test_a_full_disk_pauses_the_batch(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(stored, source, row("a", "say a"))
    store.folder.joinpath("work").write_text("no folder can be made here")
    await serve(stored, store, name, TERMS)
    assert (await seen(stored, name)).status is BatchStatus.VALIDATING
    now_ms = await run(redis, reads.store_time_ms())
    assert await run(redis, batch_reads.idle_batches(now_ms)) == []
    assert await run(redis, batch_reads.idle_batches(now_ms + 60_000)) == [name]
    store.folder.joinpath("work").unlink()
    async with serving(worker):
        await serve(stored, store, name, TERMS)
    assert (await seen(stored, name)).status is BatchStatus.COMPLETED
