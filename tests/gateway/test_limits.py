"""Keys in Redis and what they have left, as OpenAI's client sees it."""

import asyncio

import openai
import pytest

from producer.gateway.auth import StoredKeys
from producer.keys import create_key
from protocol.limits import Limits
from tests.gateway.serving import CHAT, Served, serving, taken
from tests.producer.tiny import TinyWorker


async def key_with(served: Served, limits: Limits) -> str:
    secret, _ = await create_key(served.gateway.fleet, tenant="acme", limits=limits)
    return secret


async def test_an_answer_tells_what_is_left(valkey_url: str, front: Served, worker: TinyWorker) -> None:
    key = await key_with(front, Limits(requests_a_minute=2, tokens_a_minute=10_000))
    ring = StoredKeys(front.gateway.fleet.redis, 5)
    async with serving(valkey_url, ring=ring) as guarded, guarded.sdk(key) as client, front.sdk() as anybody:
        asked = asyncio.ensure_future(client.chat.completions.with_raw_response.create(**CHAT, max_tokens=9))
        attempt = await taken(worker)
        await attempt.finish("yes")
        told = (await asked).headers
        streamed = asyncio.create_task(client.chat.completions.create(**CHAT, max_tokens=9, stream=True))
        await (await taken(worker)).finish("yes")
        left = (await streamed).response.headers
        with pytest.raises(openai.RateLimitError) as limited:
            await client.chat.completions.create(**CHAT)
        await (await streamed).close()
        other = asyncio.create_task(anybody.chat.completions.create(**CHAT))
        await (await taken(worker)).finish("yes")
        assert (await other).choices
    assert attempt.handle.tenant == "acme"
    assert (told["x-ratelimit-limit-requests"], told["x-ratelimit-remaining-requests"]) == ("2", "1")
    assert told["x-ratelimit-limit-tokens"] == "10000"
    assert told["x-ratelimit-reset-requests"].endswith("s")
    assert left["x-ratelimit-remaining-requests"] == "0"
    assert (limited.value.code, limited.value.type) == ("rate_limit_exceeded", "requests")
    assert 1 <= int(limited.value.response.headers["retry-after"]) <= 30
    assert limited.value.response.headers["x-ratelimit-remaining-requests"] == "0"


async def test_a_request_that_alone_is_over_the_limit(valkey_url: str, front: Served) -> None:
    key = await key_with(front, Limits(tokens_a_minute=10))
    ring = StoredKeys(front.gateway.fleet.redis, 5)
    async with serving(valkey_url, ring=ring) as guarded, guarded.sdk(key) as client:
        with pytest.raises(openai.APIStatusError) as refused:
            await client.chat.completions.create(**CHAT, max_tokens=100)
    assert (refused.value.status_code, refused.value.code) == (413, "too_large")
