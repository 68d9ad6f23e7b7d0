"""Files and batches over HTTP, by OpenAI's own client."""

import asyncio
import gzip
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from producer.batch.store import FileStore
from producer.gateway.state import GatewayOptions
from protocol.batches import BatchName
from protocol.wire import loads
from tests.gateway.batching import CHAT, create, put, rows, run_to_end
from tests.gateway.serving import QUICK, Served, serving

NAMED = b'--a\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--a--\r\n'


async def test_a_file_goes_in_and_comes_back_as_it_was(sdk: AsyncOpenAI) -> None:
    content = rows(3) + b"\r\n\r\n--not the boundary\r\n"
    made = await sdk.files.create(file=("eins.jsonl", content), purpose="batch")
    assert (made.bytes, made.filename, made.purpose, made.object) == (len(content), "eins.jsonl", "batch", "file")
    assert await sdk.files.retrieve(made.id) == made
    assert (await sdk.files.content(made.id)).content == content
    assert (await sdk.files.delete(made.id)).deleted
    for verb in (sdk.files.retrieve, sdk.files.content, sdk.files.delete):
        with pytest.raises(openai.NotFoundError) as refused:
            await verb(made.id)
        assert refused.value.code == "unknown_file"


async def test_files_are_listed_page_by_page(sdk: AsyncOpenAI) -> None:
    ids = {await put(sdk, rows(1), f"{n}.jsonl") for n in range(5)}
    first = await sdk.files.list(limit=2)
    assert (len(first.data), first.has_more) == (2, True)
    listed = [file.id async for file in sdk.files.list(limit=2)]
    assert (len(listed), set(listed)) == (5, ids)
    assert [file.id async for file in sdk.files.list(order="asc", limit=3)] == listed[::-1]
    assert [file.id async for file in sdk.files.list(purpose="batch_output")] == []
    with pytest.raises(openai.NotFoundError):
        await sdk.files.list(after="file-nowhere")


async def test_a_batch_runs_to_its_results(stored: Served, store: FileStore, sdk: AsyncOpenAI) -> None:
    file_id = await put(sdk, rows(4))
    made = await create(sdk, file_id, metadata={"whose": "mine"}, extra_body={"fleet": {"order": "input"}})
    assert (await stored.gateway.fleet.batches.get(made.id)).spec.order == "input"
    assert (made.status, made.input_file_id, made.metadata) == ("validating", file_id, {"whose": "mine"})
    done = await run_to_end(stored, store, sdk, made)
    assert done.status == "completed"
    assert done.request_counts
    assert (done.request_counts.total, done.request_counts.completed) == (4, 4)
    assert done.output_file_id
    lines = [loads(line) for line in (await sdk.files.content(done.output_file_id)).content.splitlines()]
    assert [line["custom_id"] for line in lines] == ["r0", "r1", "r2", "r3"]
    assert [file.id async for file in sdk.files.list(purpose="batch_output")] == [done.output_file_id]
    with pytest.raises(openai.BadRequestError, match="purpose"):
        await create(sdk, done.output_file_id)


async def test_a_packed_file_runs_as_a_plain_one(stored: Served, store: FileStore, sdk: AsyncOpenAI) -> None:
    made = await create(sdk, await put(sdk, gzip.compress(rows(2)), "in.jsonl.gz"))
    assert (await run_to_end(stored, store, sdk, made)).status == "completed"


async def test_a_bad_file_fails_its_batch_with_the_lines(stored: Served, store: FileStore, sdk: AsyncOpenAI) -> None:
    made = await create(sdk, await put(sdk, rows(1) + b"\nnonsense"))
    failed = await run_to_end(stored, store, sdk, made)
    assert failed.status == "failed"
    assert failed.errors
    assert failed.errors.data
    assert [(error.line, error.code) for error in failed.errors.data] == [(2, "invalid_json_line")]


async def test_batches_are_listed_page_by_page_and_cancelled(
    stored: Served, store: FileStore, sdk: AsyncOpenAI
) -> None:
    file_id = await put(sdk, rows(1))
    made = [(await create(sdk, file_id)).id for _ in range(5)]
    assert [batch.id async for batch in sdk.batches.list(limit=2)][:5] == made[::-1]
    last = await sdk.batches.list(limit=5)
    assert [batch.id for batch in last.data] == made[::-1]
    assert (await sdk.batches.cancel(made[0])).status == "cancelling"
    withdrawn = await sdk.batches.retrieve(made[0])
    assert (await run_to_end(stored, store, sdk, withdrawn)).status == "cancelled"
    assert (await sdk.batches.cancel(made[0])).status == "cancelled"


async def test_a_file_stays_while_a_batch_needs_it(stored: Served, store: FileStore, sdk: AsyncOpenAI) -> None:
    """Its output is in the store a moment before its record says so."""
    file_id = await put(sdk, rows(1))
    batch = await create(sdk, file_id)
    output = store.adopt(BatchName("default", batch.id), "output", store.path("default", file_id))
    assert output
    for needed in (file_id, output):
        with pytest.raises(openai.ConflictError) as refused:
            await sdk.files.delete(needed)
        assert (refused.value.code, refused.value.type) == ("batch_active", "invalid_request_error")
    ended = await run_to_end(stored, store, sdk, batch)
    assert (ended.status, ended.output_file_id) == ("completed", output)
    for needed in (file_id, output):
        assert (await sdk.files.delete(needed)).deleted


@pytest.mark.parametrize("window", [1.5, 300, 3 * 3600, 1_234_567, 30 * 86_400])
async def test_a_window_is_taken_as_it_is_shown(stored: Served, sdk: AsyncOpenAI, window: float) -> None:
    file_id = await put(sdk, rows(1))
    shown = (await create(sdk, file_id, extra_body={"fleet": {"deadline": window}})).completion_window
    body: dict[str, Any] = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": shown}
    batch = await sdk.batches.create(**body)
    assert batch.completion_window == shown
    assert batch.expires_at
    assert abs(batch.expires_at - batch.created_at - window) <= 1


@pytest.mark.parametrize("window", ["6 hours", "6h ", 6, "-1h", "1d"])
async def test_who_writes_a_window_otherwise_is_told_how(stored: Served, window: object) -> None:
    body = {"input_file_id": "file-x", "endpoint": CHAT, "completion_window": window}
    async with stored.http("ours") as http:
        error = (await http.post("/v1/batches", json=body)).json()["error"]
    assert error["message"] == "completion_window: write hours as in 24h, or seconds as in 300s"
    assert (error["param"], error["code"]) == ("completion_window", "invalid_request")


@pytest.mark.parametrize(
    "change",
    [
        {"endpoint": "/v1/responses"},
        {"completion_window": "soon"},
        {"completion_window": "9999h"},
        {"completion_window": "0s"},
        {"metadata": {"a": 1}},
        {"metadata": {str(n): "x" for n in range(17)}},
        {"output_expires_after": {"anchor": "created_at", "seconds": 3600}},
        {"fleet": {"priority": "high"}},
        {"fleet": {"deadline": 0}},
        {"fleet": {"order": "any"}},
        {"fleet": {"secret words": 1}},
        {"input_file_id": None},
    ],
    ids=range(12),
)
async def test_what_no_batch_may_be_is_refused(stored: Served, sdk: AsyncOpenAI, change: dict[str, Any]) -> None:
    body = {"input_file_id": await put(sdk, rows(1)), "endpoint": CHAT, "completion_window": "24h"} | change
    async with stored.http("ours") as http:
        refused = await http.post("/v1/batches", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
        assert "secret" not in refused.text


@pytest.mark.parametrize("name", ["passwd", "file-gone", "file-" + 24 * "0", "batch_x", "file-~"])
async def test_what_was_never_put_there_is_no_input(stored: Served, name: str) -> None:
    body = {"input_file_id": name, "endpoint": CHAT, "completion_window": "24h"}
    async with stored.http("ours") as http:
        assert (await http.post("/v1/batches", json=body)).json()["error"]["code"] == "unknown_file"


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (415, {"json": {"purpose": "batch"}}),
        (400, {"files": {"file": b"x"}}),
        (400, {"files": {"file": b"x"}, "data": {"purpose": "fine-tune"}}),
        (400, {"files": {"other": b"x"}, "data": {"purpose": "batch"}}),
        (400, {"files": {"file": b"x"}, "data": {"purpose": "batch", "expires_after[seconds]": "3600"}}),
        (400, {"files": [("file", b"x"), ("file", b"y")], "data": {"purpose": "batch"}}),
        (400, {"files": {"file": ("x" * 300, b"x")}, "data": {"purpose": "batch"}}),
        (400, {"content": b"nonsense", "headers": {"content-type": "multipart/form-data; boundary=a"}}),
        (400, {"content": NAMED, "headers": {"content-type": "multipart/form-data; boundary=a; charset=undefined"}}),
        (400, {"content": b"--a\r\n", "headers": {"content-type": "multipart/form-data"}}),
        (400, {"content": b"", "headers": {"content-type": "multipart/form-data; boundary=a"}}),
    ],
    ids=range(11),
)
async def test_what_is_no_upload_is_refused(
    stored: Served, store: FileStore, status: int, more: dict[str, Any]
) -> None:
    async with stored.http("ours") as http:
        refused = await http.post("/v1/files", **more)
    assert refused.status_code == status, refused.text
    assert refused.json()["error"]["code"] in ("invalid_request", "unsupported_media_type")
    assert store.list("default") == []


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=99999999999", "limit=-1", "limit=²"])
async def test_a_limit_is_a_number_in_its_range(stored: Served, query: str) -> None:
    async with stored.http("ours") as http:
        for path in ("/v1/files", "/v1/batches"):
            assert (await http.get(f"{path}?{query}")).status_code == 400


async def test_a_file_has_its_bounds(sim_url: str, store: FileStore) -> None:
    small = GatewayOptions(file_bytes=1000, body_s=0.2)
    async with serving(sim_url, options=small, store=store.folder) as served:
        async with served.sdk() as sdk:
            await put(sdk, b"x" * 1000)
            with pytest.raises(openai.APIStatusError) as refused:
                await put(sdk, b"x" * 200_000)
        assert refused.value.status_code == 413
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        head = "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900"
        writer.write(f"{head}\r\ncontent-type: multipart/form-data; boundary=a\r\n\r\n--a\r\n".encode())
        async with asyncio.timeout(10):
            assert b" 408 " in await reader.readline()
        writer.close()
    assert len(store.list("default")) == 1


async def test_without_a_store_there_are_none(sim_url: str) -> None:
    async with serving(sim_url, options=QUICK) as served, served.sdk() as sdk:
        for ask in (sdk.files.list(), put(sdk, b"x"), create(sdk, "file-x")):
            with pytest.raises(openai.APIStatusError) as refused:
                await ask
            assert (refused.value.status_code, refused.value.code) == (501, "setup_error")
