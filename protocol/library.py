"""Loads the function library into Redis. Only the scheduler and operators do."""

from functools import cache
from importlib.resources import files
from typing import Literal

from redis.asyncio import Redis

from protocol.call import Call, run

NAME = "tokenfleet_1"
State = Literal["ours", "other", "missing"]
_SHARED = ("_keys.lua", "_job.lua", "_buckets.lua", "_moves.lua", "_batch.lua")


@cache
def source() -> str:
    """The library as one Lua text: shared helpers first, then each function in a block of its own."""
    folder = files("protocol.functions")
    shared = [(folder / name).read_text() for name in _SHARED]
    own = sorted(item.name for item in folder.iterdir() if item.name.endswith(".lua") and item.name not in _SHARED)
    blocks = [f"do -- {name}\n{(folder / name).read_text()}\nend" for name in own]
    return "\n".join([f"#!lua name={NAME}", *shared, *blocks])


def _flatten(reply: object) -> list[bytes]:
    if isinstance(reply, dict):
        reply = [part for pair in reply.items() for part in pair]
    if isinstance(reply, (list, tuple)):
        return [leaf for part in reply for leaf in _flatten(part)]
    return [reply] if isinstance(reply, bytes) else []


async def is_loaded(redis: Redis) -> bool:
    """Whether Redis holds exactly this library."""
    return await state(redis) == "ours"


async def state(redis: Redis) -> State:
    """Whether Redis holds exactly this library, another text of its name, or none."""
    return await run(redis, Call(("FUNCTION", "LIST", "LIBRARYNAME", NAME, "WITHCODE"), _state))


def _state(reply: list[object]) -> State:
    if not reply:
        return "missing"
    return "ours" if source().encode() in _flatten(reply) else "other"


async def load(redis: Redis) -> None:
    """Load the library where it is missing or differs."""
    if not await is_loaded(redis):
        await run(redis, Call(("FUNCTION", "LOAD", "REPLACE", source()), bool))
