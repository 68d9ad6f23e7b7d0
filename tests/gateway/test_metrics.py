"""What a gateway tells Prometheus: who scrapes needs no key, and no label holds what a client sent."""

import asyncio
import re

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from producer.fleet import Fleet
from producer.gateway.auth import Grant, StoredKeys
from producer.gateway.state import GatewayOptions
from producer.keys import create_key
from protocol.limits import Limits
from tests.gateway.serving import CHAT, Ring, Served, serving, taken
from tests.producer.tiny import TinyWorker
from tests.support.waiting import eventually

NAME = "tokenfleet_gateway_"
STREAMED = {**CHAT, "stream": True, "max_tokens": 5}


async def counted(http: httpx.AsyncClient, name: str, **labels: str) -> float:
    """One sample as the page has it; 0 where it is not there."""
    page = await http.get("/metrics")
    assert page.status_code == 200
    for family in text_string_to_metric_families(page.text):
        for sample in family.samples:
            if sample.name == NAME + name and sample.labels == labels:
                return sample.value
    return 0.0


async def test_answers_tokens_and_the_first_of_them(sim: Served) -> None:
    chat = "/v1/chat/completions"
    async with sim.http() as http:
        whole = (await http.post(chat, json={**CHAT, "max_tokens": 5})).json()
        streamed = await http.post(chat, json=STREAMED)
        assert await counted(http, "requests_total", route=chat, code="200") == 2
        assert await counted(http, "tokens_total", kind="completion") == 10
        assert await counted(http, "tokens_total", kind="prompt") == 2 * whole["usage"]["prompt_tokens"]
        assert await counted(http, "first_token_seconds_count", route=chat) == 1
        assert await counted(http, "sent_bytes_total") > len(streamed.content)
        # Followed anew its first token is no news.
        await http.get(f"/v1/requests/{streamed.headers['x-request-id']}/stream")
        assert await counted(http, "first_token_seconds_count", route="/v1/requests/{id}/stream") == 0


async def test_streams_count_while_they_are_open(front: Served, worker: TinyWorker) -> None:
    async with front.http() as http:
        async with http.stream("POST", "/v1/chat/completions", json=STREAMED) as answer:
            assert answer.status_code == 200
            handle = answer.headers["x-request-id"]
            async with connect(f"{front.url.replace('http', 'ws')}/v1/requests/{handle}/ws"):
                assert await counted(http, "open_streams", kind="sse") == 1
                assert await counted(http, "open_streams", kind="ws") == 1
            await (await taken(worker)).finish("yes")
            await answer.aread()

        async def none_left() -> bool:
            return not any([await counted(http, "open_streams", kind=kind) for kind in ("sse", "ws")])

        await eventually(none_left)
        assert await counted(http, "requests_total", route="/v1/requests/{id}/ws", code="101") == 1


async def test_no_label_holds_what_a_client_sent(front: Served) -> None:
    sent = "canary-41d7"
    async with front.http(sent) as http:
        await http.get(f"/{sent}")
        await http.get(f"/v1/requests/{sent}.0.x.y")
        await http.get(f"/v1/models/{sent}")
        await http.delete("/health", headers={sent: sent})
        await http.post("/v1/chat/completions", json={"model": sent, "messages": []}, headers={"x-fleet-tenant": sent})
        assert await counted(http, "requests_total", route="other", code="404") == 1
        assert await counted(http, "requests_total", route="/v1/models/{id:path}", code="404") == 1
        assert await counted(http, "requests_total", route="/health", code="405") == 1
        page = (await http.get("/metrics")).text
    assert not re.search(sent, page, re.IGNORECASE)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text"),
        ("application/openmetrics-text;version=abc", "application/openmetrics-text"),
        ("text/plain;version=abc", "text/plain"),
        ("", "text/plain"),
    ],
)
async def test_the_page_is_in_the_scrapers_format(sim: Served, accept: str, kind: str) -> None:
    async with sim.http() as http:
        page = await http.get("/metrics", headers={"accept": accept})
    assert page.status_code == 200
    assert page.headers["content-type"].startswith(kind)


async def test_a_websocket_that_is_refused(front: Served) -> None:
    path = "/v1/requests/{id}/ws"
    with pytest.raises(InvalidStatus):
        async with connect(front.url.replace("http", "ws") + path.format(id="bench.0.default.none")):
            pass
    async with front.http() as http:
        assert await counted(http, "requests_total", route=path, code="404") == 1
        assert await counted(http, "open_streams", kind="ws") == 0


async def test_limits_that_refused(valkey: Redis, valkey_url: str, worker: TinyWorker) -> None:
    del worker
    async with Fleet(redis=valkey) as fleet:
        key, _ = await create_key(fleet, limits=Limits(requests_a_minute=1))
    async with serving(valkey_url, ring=StoredKeys(valkey, 5)) as served, served.http(key) as http:
        asked = [http.post("/v1/chat/completions", json={**CHAT, "fleet": {"wait": 0}}) for _ in range(3)]
        statuses = sorted(answer.status_code for answer in await asyncio.gather(*asked))
        assert statuses == [429, 429, 504]
        assert await counted(http, "limited_total", limit="requests") == 2


async def test_a_client_that_left_before_its_answer(front: Served, worker: TinyWorker) -> None:
    async with front.http() as http:
        asking = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT))
        await taken(worker)
        asking.cancel()

        async def left() -> bool:
            return await counted(http, "requests_total", route="/v1/chat/completions", code="499") == 1

        await eventually(left)


async def test_it_can_be_left_out(valkey_url: str) -> None:
    ring = Ring({"k": Grant("default", "")})
    async with serving(valkey_url, ring=ring, options=GatewayOptions(metrics=False)) as served, served.http() as http:
        assert (await http.get("/metrics")).status_code == 404
