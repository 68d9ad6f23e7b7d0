"""TLS connections that have not come to a request yet: they count for their address, and not for ever."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from producer.gateway import handshakes
from tests.access.certificates import Certificates
from tests.gateway.serving import QUICK, serving
from tests.gateway.test_cli import running
from tests.support.waiting import eventually

REFUSED = (OSError, httpx.TransportError)
"""What a client sees whose connection is closed before its handshake is done."""


@asynccontextmanager
async def silent(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that connects and never begins its handshake."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        # A transport closes its socket in the loop's next turn.
        await asyncio.sleep(0)


async def told(url: str, trusting: ssl.SSLContext) -> str:
    async with httpx.AsyncClient(verify=trusting, trust_env=False) as http:
        return (await http.get(f"{url.replace('127.0.0.1', 'localhost')}/metrics")).text


async def served_again(url: str, trusting: ssl.SSLContext) -> str:
    """Its metrics, once a place is free: who left is noticed a moment later."""
    try:
        return await told(url, trusting)
    except REFUSED:
        return ""


async def test_who_never_begins_a_handshake_counts(valkey_url: str, certificates: Certificates) -> None:
    files = ("--tls-cert", str(certificates.pem("good")), "--tls-key", str(certificates.key("good")))
    trusting = ssl.create_default_context(cafile=certificates.pem("ca"))
    with running(valkey_url, "--open", "--host", "127.0.0.1", "--connections", "2", *files) as gateway:
        async with silent(gateway.url):
            assert await told(gateway.url, trusting)
            async with silent(gateway.url) as (reader, writer):

                async def full() -> bool:
                    return not await served_again(gateway.url, trusting)

                # The silent ones have their places once they are taken, and keep them however often one asks.
                for _ in range(3):
                    await eventually(full, 20)
                writer.write(b"GET /health HTTP/1.1\r\n\r\n")
                while await reader.read(100):
                    pass
                # What is no handshake is over: its place is free.
                await eventually(lambda: served_again(gateway.url, trusting), 20)
        for _ in range(3):
            metrics = await eventually(lambda: served_again(gateway.url, trusting), 20)
    assert 'limited_total{limit="connections"} ' in metrics


async def test_a_handshake_has_its_time(
    valkey_url: str, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(QUICK, connections=1, certificate=certificates.pem("good"), private_key=certificates.key("good"))
    trusting = ssl.create_default_context(cafile=certificates.pem("ca"))
    async with serving(valkey_url, options=options) as front:
        url = front.url.replace("http", "https")
        with monkeypatch.context() as impatient:
            impatient.setattr(handshakes, "HANDSHAKE_S", 0.2)
            async with silent(front.url) as (reader, _), asyncio.timeout(20):
                assert await reader.read() == b""
        await eventually(lambda: served_again(url, trusting), 20)
        # Also what becomes a WebSocket's gives its place back.
        socket = f"{url.replace('https://127.0.0.1', 'wss://localhost')}/v1/requests/m.0.default.none/ws"

        async def unknown() -> bool:
            try:
                async with connect(socket, ssl=trusting):
                    return False
            except InvalidStatus as refused:
                return refused.response.status_code == 404
            except OSError:
                return False

        for _ in range(3):
            await eventually(unknown, 20)
        async with front.http() as http:
            with pytest.raises(httpx.TransportError):
                await http.get("/health")
        assert await eventually(lambda: served_again(url, trusting), 20)
