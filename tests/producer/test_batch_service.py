"""Batches as a service, in one process: each end with its words, times, counts and files."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from openai.types import Batch
from redis.asyncio import Redis

from producer.batch.service import chores
from producer.batch.service.serve import _Service, serve
from producer.batch.store import FileStore
from producer.fleet import Fleet
from protocol import keys, reads
from protocol.batches import BatchStatus
from protocol.call import Call, run
from protocol.states import Priority
from tests.producer.batch_files import leftovers, row, until_queued
from tests.producer.served import TERMS, counts, lines, owned, seen, submitted
from tests.producer.tiny import MODEL, TinyWorker, serving
from tests.support.waiting import eventually


async def test_a_batch_completes(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    rows = [*(row(f"r{n}", f"say {n}") for n in range(5)), row("bad", "refuse 400")]
    name = await submitted(stored, source, *rows, metadata={"team": "a"}, priority="low")
    before = await seen(stored, name)
    assert (before.status, before.output_file_id, before.spec.priority) == ("validating", None, Priority.LOW)
    async with serving(worker):
        await serve(stored, store, name, TERMS)
    record = await seen(stored, name)
    assert (record.status, counts(record)) == (BatchStatus.COMPLETED, (6, 5, 1))
    assert set(record.times_ms) == {"validating", "in_progress", "finalizing", "completed"}
    assert record.usage
    assert record.usage.output_tokens == 10
    found = await lines(stored, name)
    assert found["r3"]["response"]["body"]["choices"][0]["message"]["content"] == "say 3 "
    assert record.output_file_id
    assert record.error_file_id
    assert store.path("t", record.error_file_id).read_text().count("\n") == 1
    assert json.loads(store.path("t", record.error_file_id).read_text())["custom_id"] == "bad"
    assert list(store.workplaces()) == []
    assert await leftovers(redis) == []


async def test_all_rows_failing_is_completed_with_an_error_file_only(
    stored: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    name = await submitted(stored, source, row("a", "refuse 400"), row("b", "fail engine_error"))
    async with serving(worker):
        await serve(stored, store, name, TERMS)
    record = await seen(stored, name)
    assert (record.status, counts(record)) == (BatchStatus.COMPLETED, (2, 0, 2))
    assert record.output_file_id is None
    assert record.error_file_id
    assert set(await lines(stored, name)) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [(1, "empty_file")]),
        (f"{row('a')}\nno json\n{row('b')}\n[1]", [(2, "invalid_json_line"), (4, "invalid_json_line")]),
    ],
)
async def test_bad_input_fails_with_every_line(
    stored: Fleet, store: FileStore, worker: TinyWorker, source: Path, text: str, expected: list[tuple[Any, str]]
) -> None:
    name = await submitted(stored, source, text)
    # Nobody works: were a row run, this would not end.
    await serve(stored, store, name, TERMS)
    record = await seen(stored, name)
    assert (record.status, record.output_file_id) == (BatchStatus.FAILED, None)
    assert [(error.line, error.code) for error in record.errors] == expected
    batch = Batch.model_validate(record.as_json())
    assert batch.errors
    assert batch.errors.data
    assert [error.code for error in batch.errors.data] == [code for _, code in expected]


async def test_given_up_after_so_many_failures_it_keeps_what_it_has(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    rows = [row("good", "say a"), *(row(f"bad{n}", "refuse 400") for n in range(4)), row("long", "say b")]
    name = await submitted(stored, source, *rows, max_errors=2)
    async with owned(stored, store, name) as task:
        await until_queued(redis, 6)
        attempts = {attempt.prompt + str(n): attempt for n, attempt in enumerate(await worker.take())}
        *others, long = sorted(attempts, key=lambda prompt: (prompt.startswith("say b"), prompt.startswith("refuse")))
        for prompt in others:
            await (attempts[prompt].refuse(400) if prompt.startswith("refuse") else attempts[prompt].echo())
        await eventually(task.done)
    record = await seen(stored, name)
    assert (record.status, record.counts.total, record.counts.completed) == (BatchStatus.FAILED, 6, 1)
    assert set(record.times_ms) == {"validating", "in_progress", "failed"}
    found = await lines(stored, name)
    assert set(found) == {"good", "long", *(f"bad{n}" for n in range(4))}
    assert found["long"]["error"]["code"] == "batch_failed"
    assert found["good"]["response"]["status_code"] == 200
    with pytest.raises(AssertionError):
        await attempts[long].echo()
    assert await leftovers(redis) == []


async def test_an_input_that_is_gone_fails_the_batch(
    stored: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    name = await submitted(stored, source, row("a"))
    store.delete("t", (await seen(stored, name)).spec.input_file_id)
    await serve(stored, store, name, TERMS)
    record = await seen(stored, name)
    assert (record.status, [error.code for error in record.errors]) == (BatchStatus.FAILED, ["unknown_file"])


async def test_a_batch_with_too_many_failures_says_so(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(stored, source, row("a"), row("b"), max_errors=0)
    async with owned(stored, store, name) as task:
        await until_queued(redis, 2)
        await (await worker.take())[0].refuse(400)
        await eventually(task.done)
    record = await seen(stored, name)
    assert (record.status, [error.code for error in record.errors]) == (BatchStatus.FAILED, ["batch_failed"])
    assert Batch.model_validate(record.as_json()).errors


async def test_a_batch_with_too_many_failures_says_so_where_all_rows_have_ended(
    stored: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    name = await submitted(stored, source, row("a", "refuse 400"), max_errors=0)
    async with serving(worker):
        await serve(stored, store, name, TERMS)
    record = await seen(stored, name)
    assert (record.status, counts(record)) == (BatchStatus.FAILED, (1, 0, 1))
    assert [error.code for error in record.errors] == ["batch_failed"]


async def _dies(*_: object) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("rows", [("a",), ("a", "b")])
async def test_a_batch_with_too_many_failures_has_failed_also_where_its_runner_died_before_it_said_so(
    stored: Fleet,
    store: FileStore,
    worker: TinyWorker,
    redis: Redis,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: tuple[str, ...],
) -> None:
    name = await submitted(stored, source, *(row(custom_id) for custom_id in rows), max_errors=0)
    with monkeypatch.context() as patch:
        patch.setattr(_Service, "_end", _dies)
        async with owned(stored, store, name) as task:
            await until_queued(redis, len(rows))
            await (await worker.take())[0].refuse(400)
            await eventually(task.done)
            assert task.cancelled()
    async with serving(worker):
        await serve(stored, store, name, TERMS)
    record = await seen(stored, name)
    assert (record.status, counts(record)) == (BatchStatus.FAILED, (len(rows), 0, 1))
    assert [error.code for error in record.errors] == ["batch_failed"]


async def test_cancelled_before_anybody_ran_it(
    stored: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    """Then no line is judged: each has its line, also one that is no request."""
    name = await submitted(stored, source, row("a"), row("b", max_tokens=0))
    assert (await stored.batches.cancel(name.id)).status is BatchStatus.CANCELLING
    await serve(stored, store, name, TERMS)
    record = await seen(stored, name)
    assert (record.status, counts(record), record.output_file_id) == (BatchStatus.CANCELLED, (2, 0, 0), None)
    assert set(await lines(stored, name)) == {"a", "b"}
    assert {line["error"]["code"] for line in (await lines(stored, name)).values()} == {"batch_cancelled"}
    assert set(record.times_ms) == {"validating", "cancelling", "cancelled"}


async def test_cancelled_while_it_runs_keeps_what_is_done(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    """5 fast rows and 20 slow ones."""
    name = await submitted(stored, source, *(row(f"r{n}", f"say {n}") for n in range(25)))
    async with owned(stored, store, name) as task:
        await until_queued(redis, 25)
        attempts = await worker.take()
        for attempt in attempts[:5]:
            await attempt.echo()

        async def told() -> bool:
            return (await seen(stored, name)).counts.completed == 5

        await eventually(told)
        # While it runs too: `batch watch` tells its pace.
        usage = (await seen(stored, name)).usage
        assert usage
        assert usage.output_tokens > 0
        await stored.batches.cancel(name.id)
        await eventually(task.done)
    record = await seen(stored, name)
    assert (record.status, counts(record)) == (BatchStatus.CANCELLED, (25, 5, 0))
    assert set(record.times_ms) == {"validating", "in_progress", "cancelling", "cancelled"}
    found = await lines(stored, name)
    assert len(found) == 25
    codes = [line["error"]["code"] for line in found.values() if line["error"]]
    assert codes == ["batch_cancelled"] * 20
    # The engine's slots are free: nothing of the batch lives on.
    assert await run(redis, reads.lane_depth(worker.shard, Priority.MEDIUM)) == 0
    assert await leftovers(redis) == []


async def test_cancelled_when_it_is_over_changes_nothing(
    stored: Fleet, store: FileStore, worker: TinyWorker, source: Path
) -> None:
    name = await submitted(stored, source, row("a"))
    async with serving(worker):
        await serve(stored, store, name, TERMS)
    before = await seen(stored, name)
    assert await stored.batches.cancel(name.id) == before


async def test_it_expired_before_anybody_ran_it(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(stored, source, row("a"), row("b"), deadline=1)

    async def late() -> bool:
        return await run(redis, reads.store_time_ms()) > (await seen(stored, name)).expires_ms

    await eventually(late)
    await serve(stored, store, name, TERMS)
    record = await seen(stored, name)
    assert (record.status, counts(record), record.output_file_id) == (BatchStatus.EXPIRED, (2, 0, 0), None)
    assert {line["error"]["code"] for line in (await lines(stored, name)).values()} == {"batch_expired"}
    assert await leftovers(redis) == []


async def test_it_expires(stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path) -> None:
    name = await submitted(stored, source, *(row(f"r{n}", f"say {n}") for n in range(6)), deadline=1.5)
    async with owned(stored, store, name) as task:
        await until_queued(redis, 6)
        for attempt in (await worker.take())[:2]:
            await attempt.echo()

        async def over() -> bool:
            await worker.take()  # The dispatcher keeps the time; nobody works.
            return task.done()

        await eventually(over, timeout_s=10)
    record = await seen(stored, name)
    assert (record.status, counts(record)) == (BatchStatus.EXPIRED, (6, 2, 0))
    assert set(record.times_ms) == {"validating", "in_progress", "expired"}
    found = await lines(stored, name)
    assert [line["error"]["code"] for line in found.values() if line["error"]] == ["batch_expired"] * 4
    assert record.output_file_id


async def test_batches_that_live_are_counted_but_for_those_that_a_hand_wrote(
    stored: Fleet, redis: Redis, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [await submitted(stored, source, row("a")) for _ in range(4)]
    assert await chores.living(redis) == ["validating"] * 4
    with monkeypatch.context() as patch:
        patch.setattr(chores, "MOST_LIVING", 3)
        assert await chores.living(redis) == ["validating"] * 3
    await run(redis, Call(("HSET", keys.batch(names[0]), "status", "on_holiday"), bool))
    await run(redis, Call(("SET", keys.batch(names[1]), "by hand"), bool))
    assert await chores.living(redis) == ["validating"] * 2
    for name in names:
        await run(redis, Call(("DEL", keys.batch(name)), bool))
    assert await chores.living(redis) == []


async def test_the_model_is_told_while_rows_run(
    stored: Fleet, store: FileStore, worker: TinyWorker, redis: Redis, source: Path
) -> None:
    name = await submitted(stored, source, row("a"))
    del worker
    async with owned(stored, store, name):
        await until_queued(redis, 1)

        async def told() -> bool:
            record = await seen(stored, name)
            return record.status is BatchStatus.IN_PROGRESS and record.model == MODEL

        await eventually(told)
