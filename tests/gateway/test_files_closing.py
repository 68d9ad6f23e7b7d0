"""Files that are on their way when a gateway is told to stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from producer.batch.store import FileStore
from producer.gateway import server
from tests.gateway.raw import SMALL_BYTES, RawClient, connected
from tests.gateway.serving import Served, serving
from tests.support.waiting import eventually

FORM = (
    b'--a\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--a\r\ncontent-disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
)
REST = b"{}\r\n--a--\r\n"
HEAD = (
    "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-type: multipart/form-data; boundary=a\r\n"
    f"content-length: {len(FORM) + len(REST)}\r\n\r\n"
)


@asynccontextmanager
async def sending(front: Served) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client in the middle of its upload."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(front.url.rpartition(":")[2]))
    writer.write(HEAD.encode() + FORM)
    await eventually(lambda: len(front.gateway.stays))
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.fixture(autouse=True)
def _no_time_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the gateway itself does not wait for is cut off."""
    monkeypatch.setattr(server, "LAST_S", 0.1)


async def told_to_stop(front: Served) -> None:
    """It waits, for longer than it has for connections alone."""
    front.stop.set()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await front.ended.wait()


async def test_an_upload_has_the_grace_that_streams_have(valkey_url: str, store: FileStore) -> None:
    async with serving(valkey_url, store=store.folder, grace_s=20) as front, sending(front) as (reader, writer):
        await told_to_stop(front)
        writer.write(REST)
        answer = await reader.read()
        await front.ended.wait()
    assert answer.startswith(b"HTTP/1.1 200")
    assert [file.bytes for file in store.list("default")] == [2]


async def test_an_upload_that_takes_longer_is_told_to_come_again(valkey_url: str, store: FileStore) -> None:
    async with serving(valkey_url, store=store.folder) as front, sending(front) as (reader, _):
        front.stop.set()
        answer = await reader.read()
        await front.ended.wait()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"gateway_closing" in answer
    assert not store.list("default")
    assert not [path for path in store.folder.rglob("*") if path.is_file()]


@asynccontextmanager
async def fetching(front: Served, file_id: str) -> AsyncIterator[RawClient]:
    """A client that takes a file slowly."""
    head = f"GET /v1/files/{file_id}/content"
    async with connected(front.url, head, receive_bytes=SMALL_BYTES) as client:
        await client.until(b"\r\n\r\n")
        yield client


async def test_a_file_on_its_way_out_has_it_too(valkey_url: str, store: FileStore, tmp_path: Path) -> None:
    size = 4 << 20
    (tmp_path / "large").write_bytes(bytes(size))
    with (tmp_path / "large").open("rb") as source:
        file_id = store.put("default", source, "large").id
    async with serving(valkey_url, store=store.folder, grace_s=20) as front, fetching(front, file_id) as client:
        await told_to_stop(front)
        async with front.http() as http:
            assert (await http.get(f"/v1/files/{file_id}/content")).status_code == 503
        got = len(client.wire.partition(b"\r\n\r\n")[2])
        while data := await client.reader.read(65_536):
            got += len(data)
        await front.ended.wait()
    assert got == size
