"""Batches within what a key may, and those of others."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from producer.batch.store import FileStore
from protocol.states import Priority
from tests.gateway.batching import create, put, rows, run_to_end
from tests.gateway.serving import MODEL, Served
from tests.producer.batch_files import row


async def test_another_tenants_are_not_there(stored: Served, sdk: AsyncOpenAI) -> None:
    file_id = await put(sdk, rows(1))
    batch = await create(sdk, file_id)
    async with stored.sdk("theirs") as other:
        assert [file.id async for file in other.files.list()] == []
        assert [one.id async for one in other.batches.list()] == []
        asks: list[Any] = [
            *(other.files.retrieve(file_id), other.files.content(file_id), other.files.delete(file_id)),
            *(other.batches.retrieve(batch.id), other.batches.cancel(batch.id), create(other, file_id)),
        ]
        for ask in asks:
            with pytest.raises(openai.NotFoundError):
                await ask
    async with stored.sdk("nobody") as nobody:
        for ask in (nobody.files.list(), nobody.batches.list(), put(nobody, b"x"), create(nobody, file_id)):
            with pytest.raises(openai.AuthenticationError):
                await ask
    assert (await sdk.batches.retrieve(batch.id)).status == "validating"


async def test_a_key_gives_its_batches_no_more_than_it_has(stored: Served, sdk: AsyncOpenAI) -> None:
    file_id = await put(sdk, rows(1))

    async def spec(key: str, **fleet: Any) -> tuple[Priority, str | None]:
        async with stored.sdk(key) as client:
            batch = await create(client, file_id, extra_body={"fleet": fleet})
        found = (await stored.gateway.fleet.batches.get(batch.id)).spec
        return found.priority, found.model

    assert await spec("ours") == (Priority.MEDIUM, None)
    assert await spec("ours", priority="low", model="x") == (Priority.LOW, "x")
    assert await spec("low") == (Priority.LOW, None)
    assert await spec("narrow") == (Priority.MEDIUM, None)
    assert await spec("narrow", model=MODEL) == (Priority.MEDIUM, MODEL)
    for key, fleet in (("high", {}), ("low", {"priority": "medium"})):
        with pytest.raises(openai.PermissionDeniedError):
            await spec(key, **fleet)
    for key, fleet in (("elsewhere", {}), ("narrow", {"model": "x"})):
        with pytest.raises(openai.NotFoundError):
            await spec(key, **fleet)


async def test_no_row_leaves_the_models_of_its_key(stored: Served, store: FileStore, sdk: AsyncOpenAI) -> None:
    """Neither behind the first row, nor once bad lines are left out; what it names is as if it were not there."""
    rest = row("r9", "say", model="another").encode()
    file_id = await put(sdk, rows(2) + b"\n" + rest)
    async with stored.sdk("narrow") as narrow:
        failed = await run_to_end(stored, store, narrow, await create(narrow, file_id))
        skipping = {"fleet": {"on_invalid": "skip"}}
        partly = await run_to_end(stored, store, narrow, await create(narrow, file_id, extra_body=skipping))
        with pytest.raises(openai.NotFoundError):
            await create(narrow, await put(sdk, rest))
    assert failed.errors
    assert failed.errors.data
    assert [(error.line, error.code) for error in failed.errors.data] == [(3, "model_mismatch")]
    assert partly.request_counts
    assert (partly.request_counts.completed, partly.request_counts.failed) == (2, 1)


async def test_a_first_row_that_can_not_run_hides_no_other(stored: Served, store: FileStore, sdk: AsyncOpenAI) -> None:
    """A glance takes the model of a row that is then found bad; the batch's is that of the first good one."""
    lines = row("r0", "say", model=MODEL, temperature=-1), row("r1", "say", model=MODEL)
    async with stored.sdk("elsewhere") as elsewhere, stored.sdk("narrow") as narrow:
        hidden = row("r0", "say", model="another", temperature=-1), row("r1", "say", model=MODEL)
        file_id = await put(sdk, "\n".join(hidden).encode())
        skipping = {"fleet": {"on_invalid": "skip"}}
        made = await create(elsewhere, file_id, extra_body=skipping)
        ended = await run_to_end(stored, store, elsewhere, made)
        good = await create(narrow, await put(sdk, "\n".join(lines).encode()), extra_body=skipping)
        assert (await run_to_end(stored, store, narrow, good)).status == "completed"
    assert ended.status == "failed"
    assert ended.errors
    assert ended.errors.data
    assert [error.code for error in ended.errors.data] == ["invalid_request", "unknown_model"]


async def test_an_idempotency_key_is_one_batch(stored: Served, sdk: AsyncOpenAI) -> None:
    file_id, key = await put(sdk, rows(1)), {"idempotency-key": "my key/1"}
    first, again = [await create(sdk, file_id, extra_headers=key) for _ in range(2)]
    plain = await create(sdk, file_id)
    assert first == again
    with pytest.raises(openai.ConflictError) as conflict:
        await create(sdk, file_id, extra_headers=key, metadata={"a": "b"})
    assert conflict.value.code == "conflicting_id"
    assert [batch.id async for batch in sdk.batches.list()][:2] == [plain.id, first.id]
