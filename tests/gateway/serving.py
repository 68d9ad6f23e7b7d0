"""Gateways in the test's own loop, and what tests ask them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI

from producer.fleet import Fleet
from producer.gateway.auth import Everybody, Grant, KeyRing
from producer.gateway.outlet import Pace
from producer.gateway.server import listen, serve
from producer.gateway.state import Gateway, GatewayOptions
from protocol.settings import Settings
from protocol.wire import JsonObject, loads
from tests.producer.tiny import Attempt, TinyWorker
from tests.support.waiting import eventually

MODEL = "m"
CHAT: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": "tell me of the sea"}]}
QUICK = GatewayOptions(leave_s=0.1, body_s=1.0, pace=Pace(hold_s=0.5, keep_alive_s=0.5))


@dataclass
class Served:
    """A gateway that runs."""

    gateway: Gateway
    url: str
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def sdk(self, key: str = "any", **more: Any) -> AsyncOpenAI:
        """OpenAI's own client; close it."""
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, **{"max_retries": 0, **more})

    def http(self, key: str = "any") -> httpx.AsyncClient:
        """A client that tries nothing again; close it."""
        headers = {"authorization": f"Bearer {key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=20, trust_env=False)


@dataclass(frozen=True)
class Ring:
    """A key ring in memory."""

    grants: dict[str, Grant]

    async def find(self, key: str) -> Grant | None:
        return self.grants.get(key)


@asynccontextmanager
async def serving(
    redis_url: str,
    *,
    ring: KeyRing | None = None,
    options: GatewayOptions = QUICK,
    grace_s: float = 0.0,
    patience_s: float = 5.0,
    store: Path | None = None,
) -> AsyncIterator[Served]:
    """A gateway on a free port for the length of a block."""
    settings = Settings(redis_url=redis_url, redis_patience_s=patience_s, store=store)
    async with Fleet(settings=settings) as fleet:
        gateway = Gateway(fleet, ring or Everybody(), options)
        listener = listen("127.0.0.1", 0)
        served = Served(gateway, f"http://127.0.0.1:{listener.getsockname()[1]}")
        task = asyncio.create_task(serve(gateway, listener, served.stop, grace_s=grace_s))
        task.add_done_callback(lambda _: served.ended.set())
        try:
            yield served
        finally:
            served.stop.set()
            await task


async def taken(worker: TinyWorker) -> Attempt:
    """The next job that somebody submits, started."""
    (attempt,) = await eventually(worker.take)
    return attempt


@dataclass(frozen=True)
class SentEvent:
    """A server-sent event."""

    id: str
    name: str
    data: str

    @property
    def text(self) -> str:
        """What a chunk says; empty for all else."""
        if self.name or self.data == "[DONE]":
            return ""
        choices = loads(self.data).get("choices") or [{}]
        return choices[0].get("text") or (choices[0].get("delta") or {}).get("content") or ""


async def events(lines: AsyncIterator[str]) -> AsyncGenerator[SentEvent, None]:
    """The events of a stream, as browsers read them: the last id stays until there is another."""
    place, name, data = "", "", []
    async for line in lines:
        field_name, _, value = line.partition(": ")
        match field_name:
            case "id":
                place = value
            case "event":
                name = value
            case "data":
                data.append(value)
            case "" if not line and data:
                yield SentEvent(place, name, "\n".join(data))
                name, data = "", []


async def text_of(stream: AsyncIterator[SentEvent]) -> str:
    """The text that a client ends up with."""
    text = ""
    async for event in stream:
        text = "" if event.name == "restart" else text + event.text
    return text
