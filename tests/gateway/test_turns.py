"""In a gateway with many streams, one that begins is not behind all the others."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from producer.events import Event, Tokens
from producer.fleet import Fleet
from producer.gateway.auth import Everybody
from producer.gateway.relay import Relay
from producer.gateway.state import Gateway
from producer.gateway.streaming import told
from protocol.handle import Handle
from protocol.turns import AT_ONCE

MANY = 10 * AT_ONCE


async def test_a_first_token_waits_for_few_of_those_that_others_hear(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, step, heard = asyncio.Event(), asyncio.Event(), list[str]()

    async def follow(handle: Handle, after: str, *, new: bool) -> AsyncGenerator[Event, None]:
        """Two tokens, the second at the engine's next step."""
        del after, new
        yield Tokens("1-1", ({"choices": [{"delta": {"content": str(handle)}}]},))
        await step.wait()
        yield Tokens("1-2", ({"choices": [{"delta": {"content": str(handle)}}]},))

    async def listen(gateway: Gateway, number: int) -> None:
        async with aclosing(told(gateway, Relay(Handle.parse(f"pool.0.t.{number}")))) as events:
            async for _, (message,) in events:
                heard.append(message.id)
                if len(heard) == MANY:
                    begun.set()

    async with Fleet(valkey_url) as fleet:
        monkeypatch.setattr(fleet, "follow", follow)
        gateway = Gateway(fleet, Everybody())
        tasks = [asyncio.create_task(listen(gateway, number)) for number in range(MANY)]
        await begun.wait()
        step.set()
        # All are woken; only then does the new one come.
        await asyncio.gather(*tasks, asyncio.create_task(listen(gateway, MANY)))
    assert heard[:MANY] == ["1-1"] * MANY
    assert heard.index("1-1", MANY) <= MANY + AT_ONCE
    assert heard.count("1-2") == MANY + 1
