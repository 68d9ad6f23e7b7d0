"""As many streams as one process must hold."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import TypeVar

import httpx

from producer.gateway.server import allow_many_connections
from tests.gateway.raw import connected
from tests.gateway.serving import CHAT, taken
from tests.gateway.test_cli import END_S, running
from tests.producer.tiny import Attempt, TinyWorker

T = TypeVar("T")
STREAMS, JOBS = 1_000, 10
AT_ONCE = 50


async def test_a_thousand_open_streams_in_one_process(valkey_url: str, worker: TinyWorker) -> None:
    allow_many_connections()
    with running(valkey_url, "--open") as gateway:
        async with AsyncExitStack() as stack:
            attempts = [await started(gateway.url, worker) for _ in range(JOBS)]
            clients = [
                await stack.enter_async_context(connected(gateway.url, f"GET /v1/requests/{attempt.handle}/stream"))
                for attempt in attempts
                for _ in range(STREAMS // JOBS)
            ]
            await each(attempts, lambda attempt: attempt.say(f"{attempt.handle} "))
            await each(clients, lambda client: client.until(b"data: "))
            async with httpx.AsyncClient(trust_env=False, timeout=END_S) as http:
                assert (await http.get(f"{gateway.url}/ready")).status_code == 200
            await each(attempts, end)
            await each(clients, lambda client: client.until(b"[DONE]"))
    assert [client.text for client in clients] == [
        f"{attempt.handle} and all" for attempt in attempts for _ in range(STREAMS // JOBS)
    ]


async def started(url: str, worker: TinyWorker) -> Attempt:
    """A job that goes on without its client."""
    body = CHAT | {"stream": True, "fleet": {"keep": True}}
    async with connected(url, "POST /v1/chat/completions", body):
        return await taken(worker)


async def end(attempt: Attempt) -> None:
    await attempt.say("and all")
    await attempt.finish()


async def each(items: Iterable[T], act: Callable[[T], Awaitable[object]]) -> None:
    """Do it with all, some at a time."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> None:
        async with turns:
            await act(item)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))
