"""Batches as their users see them: lists, watching, parts of results, tenants, deleting, retention."""

import asyncio
import io
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch import run_batch
from producer.batch.service import chores
from producer.batch.service.serve import serve
from producer.batch.store import FileStore
from producer.fleet import Fleet
from protocol import batch_reads, keys, reads
from protocol.batches import BatchName, BatchStatus
from protocol.call import Call, run
from protocol.errors import BatchActive, InvalidRequest, SetupError, UnknownBatch, UnknownFile
from protocol.settings import Settings
from tests.producer.batch_files import row, until_queued
from tests.producer.served import TERMS, counts, owned, seen, submitted, wrote
from tests.producer.tiny import TinyWorker, serving
from tests.support.waiting import eventually

READS = ("zrevrange", "zrangebyscore", "hgetall")


async def test_a_submit_that_is_broken_off_waits_for_no_pipe_and_leaves_no_file(
    stored: Fleet, store: FileStore, tmp_path: Path
) -> None:
    pipe = tmp_path / "in.jsonl"
    os.mkfifo(pipe)
    submitting = asyncio.create_task(stored.batches.submit(pipe))
    await eventually(lambda: list(store.folder.glob("fresh/*")))
    submitting.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await submitting
    assert store.list(stored.tenant) == []
    assert [path for path in store.folder.rglob("*") if path.is_file()] == []


async def test_results_so_far(stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path) -> None:
    name = await submitted(stored, source, *(row(f"r{n}", f"say {n}") for n in range(4)))
    async with owned(stored, store, name):
        await until_queued(redis, 4)
        for attempt in (await worker.take())[:2]:
            await attempt.echo()

        async def some() -> bool:
            return len([line async for line in stored.batches.results(name.id, partial=True)]) == 2

        await eventually(some)
        with pytest.raises(BatchActive):
            await anext(stored.batches.results(name.id))


async def test_results_in_the_inputs_order(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    """The first row is among the last to end; what is there so far can be read all the same."""
    name = await submitted(stored, source, *(row(f"r{n}", f"say {n}") for n in range(4)), order="input")
    early: list[str] = []
    async with owned(stored, store, name) as task:
        await until_queued(redis, 4)
        attempts = await worker.take()
        for attempt in attempts[2:]:
            await attempt.echo()

        async def some() -> bool:
            early[:] = [line["custom_id"] async for line in stored.batches.results(name.id, partial=True)]
            return len(early) == 2

        await eventually(some)
        for attempt in attempts[:2]:
            await attempt.echo()
        await eventually(task.done)
    assert [line["custom_id"] async for line in stored.batches.results(name.id)] == ["r0", "r1", "r2", "r3"]
    assert "r0" not in early


async def test_results_so_far_are_there_while_an_ordered_batch_is_finalised(
    stored: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    """Its output is whole and the file that grew is gone before its record says so."""
    name = await submitted(stored, source, row("a", "refuse 400"), row("b", "say b"), order="input")
    place = store.workplace(name)
    async with serving(worker):
        with place.held():
            await run_batch(
                stored, source, place.output, errors=place.errors, batch_id=name.id, order="input", keep=True
            )
    assert [line["custom_id"] async for line in stored.batches.results(name.id, partial=True)] == ["b", "a"]


@asynccontextmanager
async def counted(redis: Redis) -> AsyncIterator[Counter[str]]:
    """The lists and records that Redis was asked for in a block."""

    async def asked() -> Counter[str]:
        told: dict[str, dict[str, int]] = await redis.info("commandstats")
        return Counter({name: told.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in READS})

    count, before = Counter[str](), await asked()
    yield count
    count.update(await asked() - before)


async def test_each_list_is_read_once(valkey: Redis, store: FileStore, source: Path) -> None:
    async with Fleet(redis=valkey, tenant="t", settings=Settings(store=store.folder)) as fleet:
        names = {await submitted(fleet, source, row("a")) for _ in range(3)}
        async with counted(valkey) as count:
            assert {record.name for record in await fleet.batches.list()} == names
        assert count == {"zrevrange": 1, "hgetall": 3}, "none is looked for behind the last"
        async with counted(valkey) as count:
            assert set((await chores.due(valkey)).idle) == names
        assert count == {"zrangebyscore": 3}


async def test_pages_are_full_whatever_a_hand_wrote_into_the_list(stored: Fleet, redis: Redis, source: Path) -> None:
    names = [await submitted(stored, source, row("a")) for _ in range(3)]
    await run(redis, Call(("ZADD", keys.batches("t"), 9e15, "nonsense", 8e15, "more"), int))
    assert {record.name for record in await stored.batches.list(limit=3)} == {*names}
    assert await run(redis, Call(("ZCARD", keys.batches("t")), int)) == 3
    assert len(await stored.batches.list(limit=2)) == 2
    await run(redis, Call(("DEL", keys.batch(names[2])), int))
    assert [record.name for record in await stored.batches.list(limit=1)] == [names[1]], "another in its place"
    assert await stored.batches.list(limit=0) == []


async def test_watching_tells_each_look_where_that_is_asked_for(stored: Fleet, source: Path) -> None:
    name = await submitted(stored, source, row("a"))
    looks = stored.batches.watch(name.id, every_s=0.005, each=True)
    assert await anext(looks) == await anext(looks)
    await looks.aclose()


async def test_watching_tells_each_change_to_the_end(
    stored: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    name = await submitted(stored, source, row("a", "say a"))
    watching = stored.batches.watch(name.id, every_s=0.005)
    assert (await anext(watching)).status is BatchStatus.VALIDATING
    async with serving(worker), owned(stored, store, name):
        rest = [record async for record in watching]
    assert rest[-1].status is BatchStatus.COMPLETED
    assert rest == sorted(rest, key=lambda record: len(record.times_ms))


async def test_tenants_do_not_see_each_others_batches(stored: Fleet, redis: Redis, source: Path) -> None:
    name = await submitted(stored, source, row("a"))
    async with Fleet(redis=redis, tenant="other", settings=stored.settings) as other:
        for verb in (other.batches.get, other.batches.cancel, other.batches.delete):
            with pytest.raises(UnknownBatch):
                await verb(name.id)
        assert await other.batches.list() == []
        with pytest.raises(UnknownFile):
            await other.batches.submit((await stored.batches.get(name.id)).spec.input_file_id)
        with pytest.raises(UnknownBatch):
            await other.batches.list(after=name.id)
    assert (await seen(stored, name)).status is BatchStatus.VALIDATING


async def test_lists_go_back_in_time(stored: Fleet, source: Path) -> None:
    names = [await submitted(stored, source, row("a")) for _ in range(5)]
    first = await stored.batches.list(limit=2)
    rest = await stored.batches.list(after=first[-1].name.id)
    assert sorted(record.name.id for record in [*first, *rest]) == sorted(name.id for name in names)
    times = [record.times_ms[BatchStatus.VALIDATING] for record in [*first, *rest]]
    assert times == sorted(times, reverse=True)


async def test_deleting(stored: Fleet, store: FileStore, worker: TinyWorker, source: Path) -> None:
    name = await submitted(stored, source, row("a", "say a"))
    twin = (await stored.batches.submit((await seen(stored, name)).spec.input_file_id)).name
    with pytest.raises(BatchActive):
        await stored.batches.delete(name.id)
    async with serving(worker):
        await serve(stored, store, name, TERMS)
        await stored.batches.delete(name.id)
        assert len(store.list("t")) == 1, "the input is another's too"
        await serve(stored, store, twin, TERMS)
    await stored.batches.delete(twin.id)
    assert (store.list("t"), await stored.batches.list()) == ([], [])


@pytest.mark.parametrize(
    "bad",
    [
        {"metadata": {"k" * 65: "v"}},
        {"deadline": 0},
        {"window": "6h"},
        {"max_errors": -1},
        {"on_invalid": "maybe"},
        {"order": "any"},
        {"priority": "urgent"},
        {"priority": "high"},
        {"endpoint": "/v1/nothing"},
    ],
)
async def test_what_is_refused_leaves_nothing(
    stored: Fleet, store: FileStore, source: Path, bad: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        await stored.batches.submit(wrote(source, row("a")), **bad)
    assert (store.list("t"), await stored.batches.list()) == ([], [])


async def test_without_a_store_or_a_file_nothing_is_submitted(redis: Redis, stored: Fleet, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="can't be opened"):
        await stored.batches.submit(tmp_path / "missing.jsonl")
    async with Fleet(redis=redis, tenant="t", settings=Settings(store=None)) as bare:
        with pytest.raises(SetupError, match=r"no store is set.*Settings\(store=…\)"):
            await bare.batches.submit(tmp_path / "missing.jsonl")


async def test_the_endpoint_is_that_of_the_first_row_that_has_one(stored: Fleet, source: Path) -> None:
    name = await submitted(stored, source, "no json", row("a", url="/v1/completions"), row("b"))
    assert (await seen(stored, name)).spec.endpoint == "/v1/completions"


async def test_the_first_valid_row_has_the_last_word_on_the_endpoint(
    stored: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    """The glance at the file saw a row that can't be run: the others must not be held against it."""
    rows = [row("bad", url="/v1/completions", max_tokens=-1), row("a", "say a"), row("b", "say b")]
    name = await submitted(stored, source, *rows, on_invalid="skip")
    given = (await stored.batches.submit(source, endpoint="/v1/completions")).name
    async with serving(worker):
        await serve(stored, store, name, TERMS)
        await serve(stored, store, given, TERMS)
    assert counts(await seen(stored, name)) == (3, 2, 1)
    assert [error.code for error in (await seen(stored, given)).errors][1:] == ["url_mismatch", "url_mismatch"]


async def test_retention(stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path) -> None:
    """Everything of an ended batch goes when its time is over, and nothing of one that runs."""
    ended = await submitted(stored, source, row("a", "say a"))
    async with serving(worker):
        await serve(stored, store, ended, TERMS)
    running = await submitted(stored, source, row("a"))
    half = BatchName("t", "batch_gone")
    with store.workplace(half).held():
        store.workplace(half).output.write_bytes(b"a line")
    now_ms = await run(redis, reads.store_time_ms())
    hour_ms = round(TERMS.keep_s * 1000)
    await chores.clean(redis, store, TERMS.keep_s, now_ms)
    assert (len(store.list("t")), len(await stored.batches.list())) == (3, 2)
    assert list(store.workplaces()) == [], "nobody runs that batch"
    assert await chores.clean(redis, store, TERMS.keep_s, now_ms + hour_ms + 5_000)
    assert [record.name for record in await stored.batches.list()] == [running]
    used = (await seen(stored, running)).spec.input_file_id
    assert [file.id for file in store.list("t")] == [used]
    assert await run(redis, batch_reads.untold_batches(now_ms + hour_ms)) == []


async def test_an_input_is_kept_as_long_as_the_last_batch_that_used_it(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis
) -> None:
    """Put there long ago; the batch has just ended."""
    past = FileStore(store.folder, lambda: time.time() - 2 * TERMS.keep_s)
    used, unused = (past.put("t", io.BytesIO(row("a", "say a").encode()), "in.jsonl").id for _ in range(2))
    name = (await stored.batches.submit(used)).name
    async with serving(worker):
        await serve(stored, store, name, TERMS)
    now_ms = await run(redis, reads.store_time_ms())
    assert await chores.clean(redis, store, TERMS.keep_s, now_ms) == 1
    with pytest.raises(UnknownFile):
        store.get("t", unused)
    assert {file.id for file in store.list("t")} == {used, (await seen(stored, name)).output_file_id}
    await chores.clean(redis, store, TERMS.keep_s, now_ms + round(TERMS.keep_s * 1000) + 5_000)
    assert store.list("t") == []
