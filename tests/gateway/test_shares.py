"""What one key, one tenant or one address may have of a gateway at once."""

import asyncio
import errno
import threading
from dataclasses import replace

import httpx
import openai
import pytest

from producer.batch import store as stores
from producer.batch.claim import Usage
from producer.batch.store import FileStore
from producer.gateway import files
from producer.gateway.auth import Grant
from producer.gateway.connection import site_of
from tests.gateway.batching import put
from tests.gateway.raw import connected
from tests.gateway.serving import QUICK, Ring, Served, serving
from tests.support.waiting import eventually

FORM = b'--a\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--a'
KEYS = Ring({"one": Grant("acme", "k1"), "two": Grant("acme", "k2")})


async def begin_upload(front: Served, key: str) -> asyncio.StreamWriter:
    """A client in the middle of its upload; close it."""
    _, writer = await asyncio.open_connection("127.0.0.1", int(front.url.rpartition(":")[2]))
    head = f"POST /v1/files HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\ncontent-length: 900\r\n"
    before = len(front.gateway.stays)
    writer.write(head.encode() + b"content-type: multipart/form-data; boundary=a\r\n\r\n" + FORM)
    await eventually(lambda: len(front.gateway.stays) > before)
    return writer


async def test_a_key_sends_so_many_files_at_once(valkey_url: str, store: FileStore) -> None:
    two = replace(QUICK, uploads=2, body_s=20)
    async with serving(valkey_url, ring=KEYS, options=two, store=store.folder) as front:
        writers = [await begin_upload(front, "one") for _ in range(2)]
        async with front.sdk("one") as sdk, front.sdk("two") as other:
            with pytest.raises(openai.RateLimitError) as refused:
                await put(sdk, b"{}")
            assert await put(other, b"{}")
            for writer in writers:
                writer.close()
            await eventually(lambda: not len(front.gateway.stays))
            assert await put(sdk, b"{}")
        async with front.http() as http:
            metrics = (await http.get("/metrics")).text
    assert (refused.value.code, refused.value.type) == ("rate_limit_exceeded", "uploads")
    assert "2 uploads at once" in refused.value.message
    assert 'limited_total{limit="uploads"} 1.0' in metrics


async def test_a_tenants_files_have_a_bound(valkey_url: str, store: FileStore) -> None:
    small = replace(QUICK, stored_bytes=150_000)
    async with serving(valkey_url, ring=KEYS, options=small, store=store.folder) as front:
        async with front.sdk("one") as sdk, front.sdk("two") as other:
            first = await put(sdk, b"x" * 100_000)
            for size in (50_001, 400_000):  # Known once it has come, and from its head.
                with pytest.raises(openai.APIStatusError) as refused:
                    await put(other, b"x" * size)
            await other.files.delete(first)
            await put(other, b"x" * 150_000)
        async with front.http() as http:
            metrics = (await http.get("/metrics")).text
    assert (refused.value.status_code, refused.value.code) == (413, "storage_limit_reached")
    assert "delete" in refused.value.message
    assert 'limited_total{limit="storage"} 2.0' in metrics
    assert [file.bytes for file in store.list("acme")] == [150_000]
    assert store.usage("acme").bytes == 150_000


async def test_files_that_come_together_have_the_same_bound(
    valkey_url: str, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes while the first is being written, at another gateway; and a file that fails takes no room."""
    writing, go_on = threading.Event(), threading.Event()

    def slowly(_: object) -> None:
        if not writing.is_set():
            writing.set()
            assert go_on.wait(20)
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(stores, "_safe", slowly)
    small = replace(QUICK, stored_bytes=150_000)
    one = serving(valkey_url, ring=KEYS, options=small, store=store.folder)
    two = serving(valkey_url, ring=KEYS, options=small, store=store.folder)
    async with one as front, two as other, front.sdk("one") as sdk, other.sdk("two") as second:
        asked = asyncio.create_task(put(sdk, b"x" * 100_000))
        try:
            await eventually(writing.is_set)
            with pytest.raises(openai.APIStatusError) as refused:
                await put(second, b"x" * 50_001)
            await put(second, b"x" * 50_000)
        finally:
            go_on.set()
        with pytest.raises(openai.InternalServerError):
            await asked
        await put(sdk, b"x" * 100_000)
    assert refused.value.code == "storage_limit_reached"
    assert store.usage("acme") == Usage(2, 150_000)


async def test_empty_files_are_not_endless_either(
    valkey_url: str, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 2)
    unbounded = replace(QUICK, stored_bytes=0)
    async with serving(valkey_url, options=unbounded, store=store.folder) as front, front.sdk() as sdk:
        for _ in range(2):
            await put(sdk, b"")
        with pytest.raises(openai.APIStatusError) as refused:
            await put(sdk, b"")
    assert refused.value.code == "storage_limit_reached"


async def test_an_address_has_so_many_connections(valkey_url: str) -> None:
    few = replace(QUICK, connections=3)
    async with serving(valkey_url, options=few) as front:
        async with connected(front.url, "GET /health") as one, connected(front.url, "GET /health") as two:
            await one.until(b'"ok"')
            await two.until(b'"ok"')
            # A connection that becomes a WebSocket's, or is refused as one, is one all the same.
            async with connected(front.url, "GET /v1/requests/m.0.default.none/ws") as third:
                await third.until(b"unknown_job")
                while await third.reader.read(100):
                    pass
            async with connected(front.url, "GET /health") as third, connected(front.url, "GET /health") as fourth:
                await third.until(b'"ok"')
                await fourth.until(b"too_many_connections")
        assert fourth.wire.startswith(b"HTTP/1.1 429 Too Many Requests")
        assert b"retry-after: 1" in fourth.wire

        async def again() -> str:
            async with httpx.AsyncClient(trust_env=False) as http:
                answer = await http.get(f"{front.url}/metrics")
            assert answer.status_code == 200
            return answer.text

        assert 'limited_total{limit="connections"} ' in await eventually(again)


def test_an_ipv6_host_has_no_share_for_each_of_its_addresses() -> None:
    assert site_of(("2001:db8::1", 1)) == site_of(("2001:db8::ffff:1", 2)) != site_of(("2001:db8:0:1::1", 1))
    assert site_of(("fe80::1%eth0", 1)) == site_of(("fe80::2", 1))
    assert site_of(("10.0.0.1", 1)) == site_of(("10.0.0.1", 2)) != site_of(("10.0.0.2", 1))
    assert site_of(("::ffff:10.0.0.1", 1)) == "10.0.0.1"
    assert site_of(None) == ""
