"""Streams that chat one after the other, and how they fared; straight to a vLLM server here."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Protocol, Self

import aiohttp

from protocol.wire import JsonObject

SHORTEST, LONGEST = 24, 72
"""Output tokens of a chat: different ones, so that the streams do not march in step."""


@dataclass(frozen=True, slots=True)
class Round:
    """What all streams did together; times in seconds."""

    tokens: int
    wall_s: float
    first_token_s: tuple[float, ...]
    """Of each chat."""


class Load(Protocol):
    """A way to have a chat answered."""

    def chat(self, body: JsonObject) -> AsyncIterator[str]:
        """The text of the answer, in pieces that are not empty."""
        ...


async def run_round(load: Load, number: int, streams: int, chats: int) -> Round:
    """Let all streams chat; the same numbers mean the same chats."""
    firsts: list[float] = []
    tokens = 0

    async def stream(own: int) -> None:
        nonlocal tokens
        for body in bodies(number, own, chats):
            begin, said = time.perf_counter(), False
            async for _ in load.chat(body):
                if not said:
                    firsts.append(time.perf_counter() - begin)
                said = True
            tokens += body["max_tokens"]

    begin = time.perf_counter()
    await asyncio.gather(*(stream(own) for own in range(streams)))
    return Round(tokens, time.perf_counter() - begin, tuple(firsts))


def bodies(number: int, stream: int, chats: int) -> Iterator[JsonObject]:
    """One stream's chats in a round; each has exactly `max_tokens` tokens."""
    chance = random.Random(f"{number} {stream}")
    for chat in range(chats):
        question = f"Tell me a story about the number {chance.randrange(10_000)}, and about {chat}."
        yield {
            "messages": [{"role": "user", "content": question}],
            "max_tokens": chance.randint(SHORTEST, LONGEST),
            "temperature": 0,
            "ignore_eos": True,
        }


class StraightLoad:
    """Clients of the server itself."""

    def __init__(self, url: str, model: str) -> None:
        """`url` is without `/v1`."""
        self._url = f"{url}/v1/chat/completions"
        self._model = model
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connections."""
        self._session = aiohttp.ClientSession(raise_for_status=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        if self._session:
            await self._session.close()

    async def chat(self, body: JsonObject) -> AsyncIterator[str]:
        """See `Load.chat`."""
        if self._session is None:
            raise RuntimeError("the load is not open")
        asked = body | {"model": self._model, "stream": True}
        async with self._session.post(self._url, json=asked) as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:])["choices"]
                    if choices and choices[0]["delta"].get("content"):
                        yield choices[0]["delta"]["content"]
