"""Batches as a service, in one process: each end with its words and counts, hand-overs, retention, tenants."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai.types import Batch
from redis.asyncio import Redis

from producer.batch.ledger import Ledger
from producer.batch.service import chores
from producer.batch.service.owner import Owner, Terms
from producer.batch.service.serve import serve
from producer.batch.store import FileStore
from producer.fleet import Fleet
from protocol import batch_reads, functions, keys, reads
from protocol.batches import BatchChange, BatchName, BatchRecord, BatchStatus
from protocol.call import Call, run
from protocol.errors import BatchActive, InvalidRequest, SetupError, UnknownBatch, UnknownFile
from protocol.settings import Settings
from protocol.states import Priority
from tests.producer.batch_files import leftovers, row, until_queued
from tests.producer.tiny import TinyWorker, serving
from tests.support.waiting import eventually

TERMS = Terms(lease_s=0.6, keep_s=3_600, notify=True)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


@pytest.fixture
async def fleet(redis: Redis, store: FileStore) -> AsyncIterator[Fleet]:
    settings = Settings(redis_patience_s=5, store=store.folder)
    async with Fleet(redis=redis, tenant="t", settings=settings) as client:
        yield client


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


def wrote(source: Path, *rows: str) -> Path:
    source.write_text("\n".join(rows))
    return source


async def submitted(fleet: Fleet, source: Path, *rows: str, **options: Any) -> BatchName:
    wrote(source, *rows)
    return (await fleet.batches.submit(source, **options)).name


async def seen(fleet: Fleet, name: BatchName) -> BatchRecord:
    """The record; OpenAI's own type must accept it whatever its state is."""
    record = await fleet.batches.get(name.id)
    assert Batch.model_validate(record.as_json(), strict=True).status == record.status
    return record


async def lines(fleet: Fleet, name: BatchName) -> dict[str, dict[str, Any]]:
    """Output and error lines by custom id: each once."""
    found = [line async for line in fleet.batches.results(name.id)]
    by_id = {line["custom_id"]: line for line in found}
    assert len(by_id) == len(found)
    return by_id


@asynccontextmanager
async def owned(fleet: Fleet, store: FileStore, name: BatchName) -> "AsyncIterator[asyncio.Task[None]]":
    """A runner's job for the length of a block."""
    task = asyncio.create_task(serve(fleet, store, name, TERMS))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def counts(record: BatchRecord) -> tuple[int, int, int]:
    return record.counts.total, record.counts.completed, record.counts.failed


async def test_a_batch_completes(
    fleet: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    rows = [*(row(f"r{n}", f"say {n}") for n in range(5)), row("bad", "refuse 400")]
    name = await submitted(fleet, source, *rows, metadata={"team": "a"}, priority="low")
    before = await seen(fleet, name)
    assert (before.status, before.output_file_id, before.spec.priority) == ("validating", None, Priority.LOW)
    async with serving(worker):
        await serve(fleet, store, name, TERMS)
    record = await seen(fleet, name)
    assert (record.status, counts(record)) == (BatchStatus.COMPLETED, (6, 5, 1))
    assert set(record.times_ms) == {"validating", "in_progress", "finalizing", "completed"}
    assert record.usage
    assert record.usage.output_tokens == 10
    found = await lines(fleet, name)
    assert found["r3"]["response"]["body"]["choices"][0]["message"]["content"] == "say 3 "
    assert record.output_file_id
    assert record.error_file_id
    assert store.path("t", record.error_file_id).read_text().count("\n") == 1
    assert json.loads(store.path("t", record.error_file_id).read_text())["custom_id"] == "bad"
    assert list(store.workplaces()) == []
    assert await leftovers(redis) == []


async def test_all_rows_failing_is_completed_with_an_error_file_only(
    fleet: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    name = await submitted(fleet, source, row("a", "refuse 400"), row("b", "fail engine_error"))
    async with serving(worker):
        await serve(fleet, store, name, TERMS)
    record = await seen(fleet, name)
    assert (record.status, counts(record)) == (BatchStatus.COMPLETED, (2, 0, 2))
    assert record.output_file_id is None
    assert record.error_file_id
    assert set(await lines(fleet, name)) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [(1, "empty_file")]),
        (f"{row('a')}\nno json\n{row('b')}\n[1]", [(2, "invalid_json_line"), (4, "invalid_json_line")]),
    ],
)
async def test_bad_input_fails_with_every_line(
    fleet: Fleet, store: FileStore, worker: TinyWorker, source: Path, text: str, expected: list[tuple[Any, str]]
) -> None:
    name = await submitted(fleet, source, text)
    # Nobody works: were a row run, this would not end.
    await serve(fleet, store, name, TERMS)
    record = await seen(fleet, name)
    assert (record.status, record.output_file_id) == (BatchStatus.FAILED, None)
    assert [(error.line, error.code) for error in record.errors] == expected
    batch = Batch.model_validate(record.as_json())
    assert batch.errors
    assert batch.errors.data
    assert [error.code for error in batch.errors.data] == [code for _, code in expected]


async def test_an_input_that_is_gone_fails_the_batch(
    fleet: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    name = await submitted(fleet, source, row("a"))
    store.delete("t", (await seen(fleet, name)).spec.input_file_id)
    await serve(fleet, store, name, TERMS)
    record = await seen(fleet, name)
    assert (record.status, [error.code for error in record.errors]) == (BatchStatus.FAILED, ["unknown_file"])


async def test_cancelled_before_anybody_ran_it(
    fleet: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    name = await submitted(fleet, source, row("a"), row("b"))
    assert (await fleet.batches.cancel(name.id)).status is BatchStatus.CANCELLING
    await serve(fleet, store, name, TERMS)
    record = await seen(fleet, name)
    assert (record.status, counts(record), record.output_file_id) == (BatchStatus.CANCELLED, (2, 0, 0), None)
    assert {line["error"]["code"] for line in (await lines(fleet, name)).values()} == {"batch_cancelled"}
    assert set(record.times_ms) == {"validating", "cancelling", "cancelled"}


async def test_cancelled_while_it_runs_keeps_what_is_done(
    fleet: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    """5 fast rows and 20 slow ones."""
    name = await submitted(fleet, source, *(row(f"r{n}", f"say {n}") for n in range(25)))
    async with owned(fleet, store, name) as task:
        await until_queued(redis, 25)
        attempts = await worker.take()
        for attempt in attempts[:5]:
            await attempt.echo()

        async def told() -> bool:
            return (await seen(fleet, name)).counts.completed == 5

        await eventually(told)
        await fleet.batches.cancel(name.id)
        await eventually(task.done)
    record = await seen(fleet, name)
    assert (record.status, counts(record)) == (BatchStatus.CANCELLED, (25, 5, 0))
    assert set(record.times_ms) == {"validating", "in_progress", "cancelling", "cancelled"}
    found = await lines(fleet, name)
    assert len(found) == 25
    codes = [line["error"]["code"] for line in found.values() if line["error"]]
    assert codes == ["batch_cancelled"] * 20
    # The engine's slots are free: nothing of the batch lives on.
    assert await run(redis, reads.lane_depth(worker.shard, Priority.MEDIUM)) == 0
    assert await leftovers(redis) == []


async def test_cancelled_when_it_is_over_changes_nothing(
    fleet: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    name = await submitted(fleet, source, row("a"))
    async with serving(worker):
        await serve(fleet, store, name, TERMS)
    before = await seen(fleet, name)
    assert await fleet.batches.cancel(name.id) == before


async def test_it_expires(fleet: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path) -> None:
    name = await submitted(fleet, source, *(row(f"r{n}", f"say {n}") for n in range(6)), window=1.5)
    async with owned(fleet, store, name) as task:
        await until_queued(redis, 6)
        for attempt in (await worker.take())[:2]:
            await attempt.echo()

        async def over() -> bool:
            await worker.take()  # The dispatcher keeps the time; nobody works.
            return task.done()

        await eventually(over, timeout_s=10)
    record = await seen(fleet, name)
    assert (record.status, counts(record)) == (BatchStatus.EXPIRED, (6, 2, 0))
    assert set(record.times_ms) == {"validating", "in_progress", "expired"}
    found = await lines(fleet, name)
    assert [line["error"]["code"] for line in found.values() if line["error"]] == ["batch_expired"] * 4
    assert record.output_file_id


async def test_what_is_handed_over_goes_on_with_its_jobs(
    fleet: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(fleet, source, *(row(f"r{n}", f"say {n}") for n in range(8)))
    async with owned(fleet, store, name) as first:
        await until_queued(redis, 8)
        attempts = await worker.take()
        for attempt in attempts[:3]:
            await attempt.echo()

        async def told() -> bool:
            return (await seen(fleet, name)).counts.completed == 3

        await eventually(told)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    now_ms = await run(redis, reads.store_time_ms())
    assert await run(redis, batch_reads.idle_batches(now_ms)) == [name]
    async with owned(fleet, store, name) as second:
        for attempt in attempts[3:]:
            await attempt.echo()
        await eventually(second.done)
    record = await seen(fleet, name)
    assert (record.status, counts(record), record.takes) == (BatchStatus.COMPLETED, (8, 8, 0), 2)
    assert len(await lines(fleet, name)) == 8
    # The second owner ran nothing anew.
    assert await worker.take() == []


async def test_cancelled_between_two_owners_withdraws_what_the_first_had_sent(
    fleet: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(fleet, source, *(row(f"r{n}", f"say {n}") for n in range(6)))
    async with owned(fleet, store, name):
        await until_queued(redis, 6)
        held = (await worker.take())[0]
    await fleet.batches.cancel(name.id)
    await serve(fleet, store, name, TERMS)
    assert ((await seen(fleet, name)).status, await leftovers(redis)) == (BatchStatus.CANCELLED, [])
    with pytest.raises(AssertionError):
        await held.echo()


async def test_killed_while_it_validates(fleet: Fleet, store: FileStore, worker: TinyWorker, source: Path) -> None:
    """The next owner finds a ledger whose rows are not planned, and begins anew."""
    name = await submitted(fleet, source, row("a", "say a"))
    with store.workplace(name).held():
        Ledger.create(f"{store.workplace(name).output}.state").close()
    async with serving(worker):
        await serve(fleet, store, name, TERMS)
    assert (await seen(fleet, name)).status is BatchStatus.COMPLETED
    assert set(await lines(fleet, name)) == {"a"}


async def test_two_at_once_are_one(fleet: Fleet, store: FileStore, worker: TinyWorker, source: Path) -> None:
    name = await submitted(fleet, source, *(row(f"r{n}", f"say {n}") for n in range(8)))
    async with serving(worker):
        await asyncio.gather(*(serve(fleet, store, name, TERMS) for _ in range(3)))
    record = await seen(fleet, name)
    assert (counts(record), record.takes) == ((8, 8, 0), 1)


async def test_an_owner_that_has_lost_it_writes_nothing_and_leaves_the_jobs(
    fleet: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(fleet, source, *(row(f"r{n}", f"say {n}") for n in range(4)))
    async with owned(fleet, store, name) as first:
        await until_queued(redis, 4)
        # As when the first one stood still for longer than its lease.
        await run(redis, functions.batch_take(name, "nobody", 1))
        await run(redis, Call(("HSET", keys.batch(name), "token", "other"), int))
        await eventually(first.done)
    assert (await seen(fleet, name)).status is BatchStatus.IN_PROGRESS
    assert await run(redis, reads.lane_depth(worker.shard, Priority.MEDIUM)) == 4
    assert not store.workplace(name).output.read_bytes()


async def test_a_crash_between_the_states_of_its_end(
    fleet: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    """Its owner dies when the output is in the store, and nobody was told yet."""
    name = await submitted(fleet, source, row("a", "say a"))
    owner = await Owner.take(fleet.redis, name, TERMS)
    assert owner
    place = store.workplace(name)
    with place.held():
        place.output.write_bytes(b'{"custom_id":"a"}\n')
    for status in (BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING):
        await owner.write(BatchChange(status))
    store.adopt(name, "output", place.output)
    await owner.release()
    await serve(fleet, store, name, TERMS)
    record = await seen(fleet, name)
    assert record.status is BatchStatus.COMPLETED
    assert set(await lines(fleet, name)) == {"a"}
    assert len(store.list("t")) == 2


async def test_a_full_disk_pauses_the_batch(
    fleet: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(fleet, source, row("a", "say a"))
    store.folder.joinpath("work").write_text("no folder can be made here")
    await serve(fleet, store, name, TERMS)
    assert (await seen(fleet, name)).status is BatchStatus.VALIDATING
    now_ms = await run(redis, reads.store_time_ms())
    assert await run(redis, batch_reads.idle_batches(now_ms)) == []
    assert await run(redis, batch_reads.idle_batches(now_ms + 60_000)) == [name]
    store.folder.joinpath("work").unlink()
    async with serving(worker):
        await serve(fleet, store, name, TERMS)
    assert (await seen(fleet, name)).status is BatchStatus.COMPLETED


async def test_results_so_far(fleet: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path) -> None:
    name = await submitted(fleet, source, *(row(f"r{n}", f"say {n}") for n in range(4)))
    async with owned(fleet, store, name):
        await until_queued(redis, 4)
        for attempt in (await worker.take())[:2]:
            await attempt.echo()

        async def some() -> bool:
            return len([line async for line in fleet.batches.results(name.id, partial=True)]) == 2

        await eventually(some)
        with pytest.raises(BatchActive):
            await anext(fleet.batches.results(name.id))


async def test_watching_tells_each_change_to_the_end(
    fleet: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    name = await submitted(fleet, source, row("a", "say a"))
    watching = fleet.batches.watch(name.id, every_s=0.005)
    assert (await anext(watching)).status is BatchStatus.VALIDATING
    async with serving(worker), owned(fleet, store, name):
        rest = [record async for record in watching]
    assert rest[-1].status is BatchStatus.COMPLETED
    assert rest == sorted(rest, key=lambda record: len(record.times_ms))


async def test_tenants_do_not_see_each_others_batches(fleet: Fleet, redis: Redis, source: Path) -> None:
    name = await submitted(fleet, source, row("a"))
    async with Fleet(redis=redis, tenant="other", settings=fleet.settings) as other:
        for verb in (other.batches.get, other.batches.cancel, other.batches.delete):
            with pytest.raises(UnknownBatch):
                await verb(name.id)
        assert await other.batches.list() == []
        with pytest.raises(UnknownFile):
            await other.batches.submit((await fleet.batches.get(name.id)).spec.input_file_id)
        with pytest.raises(UnknownBatch):
            await other.batches.list(after=name.id)
    assert (await seen(fleet, name)).status is BatchStatus.VALIDATING


async def test_lists_go_back_in_time(fleet: Fleet, source: Path) -> None:
    names = [await submitted(fleet, source, row("a")) for _ in range(5)]
    first = await fleet.batches.list(limit=2)
    rest = await fleet.batches.list(after=first[-1].name.id)
    assert sorted(record.name.id for record in [*first, *rest]) == sorted(name.id for name in names)
    times = [record.times_ms[BatchStatus.VALIDATING] for record in [*first, *rest]]
    assert times == sorted(times, reverse=True)


async def test_deleting(fleet: Fleet, store: FileStore, worker: TinyWorker, source: Path) -> None:
    name = await submitted(fleet, source, row("a", "say a"))
    twin = (await fleet.batches.submit((await seen(fleet, name)).spec.input_file_id)).name
    with pytest.raises(BatchActive):
        await fleet.batches.delete(name.id)
    async with serving(worker):
        await serve(fleet, store, name, TERMS)
        await fleet.batches.delete(name.id)
        assert len(store.list("t")) == 1, "the input is another's too"
        await serve(fleet, store, twin, TERMS)
    await fleet.batches.delete(twin.id)
    assert (store.list("t"), await fleet.batches.list()) == ([], [])


@pytest.mark.parametrize(
    "bad",
    [
        {"metadata": {"k" * 65: "v"}},
        {"window": 0},
        {"max_errors": -1},
        {"on_invalid": "maybe"},
        {"priority": "urgent"},
        {"endpoint": "/v1/nothing"},
    ],
)
async def test_what_is_refused_leaves_nothing(
    fleet: Fleet, store: FileStore, source: Path, bad: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        await fleet.batches.submit(wrote(source, row("a")), **bad)
    assert (store.list("t"), await fleet.batches.list()) == ([], [])


async def test_without_a_store_or_a_file_nothing_is_submitted(redis: Redis, fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="can't be opened"):
        await fleet.batches.submit(tmp_path / "missing.jsonl")
    async with Fleet(redis=redis, tenant="t", settings=Settings(store=None)) as bare:
        with pytest.raises(SetupError, match="no store is set"):
            await bare.batches.submit(tmp_path / "missing.jsonl")


async def test_the_endpoint_is_that_of_the_first_row_that_has_one(fleet: Fleet, source: Path) -> None:
    name = await submitted(fleet, source, "no json", row("a", url="/v1/completions"), row("b"))
    assert (await seen(fleet, name)).spec.endpoint == "/v1/completions"


async def test_retention(fleet: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path) -> None:
    """Everything of an ended batch goes when its time is over, and nothing of one that runs."""
    ended = await submitted(fleet, source, row("a", "say a"))
    async with serving(worker):
        await serve(fleet, store, ended, TERMS)
    running = await submitted(fleet, source, row("a"))
    half = BatchName("t", "batch_gone")
    with store.workplace(half).held():
        store.workplace(half).output.write_bytes(b"a line")
    now_ms = await run(redis, reads.store_time_ms())
    hour_ms = round(TERMS.keep_s * 1000)
    await chores.clean(redis, store, TERMS.keep_s, now_ms)
    assert (len(store.list("t")), len(await fleet.batches.list())) == (3, 2)
    assert list(store.workplaces()) == [], "nobody runs that batch"
    assert await chores.clean(redis, store, TERMS.keep_s, now_ms + hour_ms + 5_000)
    assert [record.name for record in await fleet.batches.list()] == [running]
    used = (await seen(fleet, running)).spec.input_file_id
    assert [file.id for file in store.list("t")] == [used]
    assert await run(redis, batch_reads.untold_batches(now_ms + hour_ms)) == []
