"""A Redis command with the reader of its reply: built without I/O, run by whoever holds a connection."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import redis.exceptions as store_errors
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from protocol import tls
from protocol.errors import (
    FleetError,
    InvalidId,
    InvalidJson,
    LibraryMissing,
    NotAllowed,
    ProtocolViolation,
    StoreFull,
    StoreUnavailable,
    Unreadable,
    WrongType,
)

T = TypeVar("T")
R = TypeVar("R")
Arg = str | bytes | int | float
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
_UNREADABLE = (InvalidJson, InvalidId, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError)
# The last two: inside a function, by Valkey and by Redis.
_DENIED = ("NOPERM", "ACL failure in script", "The user executing the script can't")

# A blocked read on a primary that becomes a replica; a replica without its primary; min-replicas-to-write.
_FAILING_OVER = ("UNBLOCKED", "MASTERDOWN", "NOREPLICAS")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One command for Redis and the function that turns its reply into a value."""

    command: tuple[Arg, ...]
    parse: Callable[[Any], T]


def fcall(name: str, keys: Sequence[str], args: Sequence[Arg], parse: Callable[[Any], T]) -> Call[T]:
    """A call of the function library; the version stands in the function's name."""
    return Call(("FCALL", f"tf1_{name}", len(keys), *keys, *args), parse)


def translate(error: Exception) -> FleetError:
    """The typed error for what redis-py raised."""
    text = str(error)
    if isinstance(error, store_errors.AuthenticationError):
        return NotAllowed("Redis refuses the user or the password", "Check the Redis URL.")
    if isinstance(error, store_errors.NoPermissionError) or any(sign in text for sign in _DENIED):
        return NotAllowed("the Redis user may not do this", "Check its ACL rules.")
    if distrust := tls.fault(error):
        return distrust
    return _outage(error, text) or _refusal(error, text)


def _outage(error: Exception, text: str) -> StoreUnavailable | None:
    """What passes by itself, or with another server."""
    if isinstance(error, (store_errors.ConnectionError, store_errors.TimeoutError, OSError)):
        return StoreUnavailable(f"Redis does not answer ({type(error).__name__})", "Is it running?")
    if isinstance(error, store_errors.ReadOnlyError):
        return StoreUnavailable("this Redis is a read-only replica", "Connect to the primary.")
    if text.startswith(_FAILING_OVER):
        why = "Redis is failing over, or has too few replicas to take writes"
        return StoreUnavailable(why, "It goes on by itself.")
    return None


def _refusal(error: Exception, text: str) -> FleetError:
    """What an answering Redis says no with."""
    if "Function not found" in text:
        return LibraryMissing("Redis has no function library", "Start `tokenfleet scheduler`: it loads it.")
    if isinstance(error, store_errors.OutOfMemoryError) or text.startswith("OOM"):
        return StoreFull("Redis is at its memory limit and takes no new work", "Try again later.")
    if text.startswith("MISCONF"):
        return StoreFull("Redis can't write to its disk and takes nothing", "Is the disk full? See its log.")
    if text.startswith("WRONGTYPE"):
        return WrongType("a key holds another type than expected", "Was it written by hand?")
    return ProtocolViolation(f"Redis answered {type(error).__name__}: {text[:200]}")


async def heed_cancel(reply: Awaitable[R]) -> R:
    """Await something of redis-py's; a cancellation that came meanwhile is raised even when it was swallowed there.

    Before Python 3.12 `asyncio.wait_for`, which redis-py and fakeredis use, swallows one that comes with the reply, or
    with the connection's end: whoever is patient would go on after it.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        return await reply
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError


async def run(redis: Redis, call: Call[T]) -> T:
    """Run one call.

    Raises:
        FleetError: what `translate` makes of Redis's error, or what the reply says.
    """
    try:
        asked = redis.execute_command(*call.command)  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
        reply = await heed_cancel(asked)
    except (store_errors.RedisError, OSError) as error:
        raise translate(error) from error
    return _value(call.parse, reply)


async def run_all(redis: Redis, calls: Sequence[Call[T]]) -> list[T | FleetError]:
    """Run many calls in one round trip; a call that fails yields its error in its place.

    Raises:
        StoreUnavailable: the connection broke; any part of the calls may have been done.
    """
    pipe = redis.pipeline(transaction=False)
    for call in calls:
        pipe.execute_command(*call.command)
    try:
        replies = await heed_cancel(pipe.execute(raise_on_error=False))
    except (store_errors.RedisError, OSError) as error:
        raise translate(error) from error
    return [_parse(call.parse, reply) for call, reply in zip(calls, replies, strict=True)]


def run_sync(redis: SyncRedis, call: Call[T]) -> T:
    """Run one call on a blocking connection; raises as `run` does."""
    try:
        reply = redis.execute_command(*call.command)  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
    except (store_errors.RedisError, OSError) as error:
        raise translate(error) from error
    return _value(call.parse, reply)


def _parse(parse: Callable[[Any], T], reply: object) -> T | FleetError:
    if isinstance(reply, Exception):
        return translate(reply)
    try:
        return _value(parse, reply)
    except FleetError as error:
        return error


def _value(parse: Callable[[Any], T], reply: object) -> T:
    """What a reply says. What was written by hand may break any reader: its error would quote it, this one does not."""
    try:
        return parse(reply)
    except _UNREADABLE:
        raise Unreadable("a key holds what can't be read", "Was it written by hand?") from None


def value_of(result: T | FleetError) -> T:
    """The value of one result of `run_all`, or raise its error."""
    if isinstance(result, FleetError):
        raise result
    return result


def spread_s(pause_s: float, over_s: float = 0.0) -> float:
    """By chance between `pause_s` and twice that plus `over_s` seconds: what one outage cut off comes back spread."""
    return pause_s + (pause_s + over_s) * secrets.randbelow(1000) / 1000


async def patiently(attempt: Callable[[], Awaitable[R]], patience_s: float) -> R:
    """Repeat `attempt` while Redis is away, for `patience_s` seconds at most.

    The pauses grow, and are spread by chance.

    Only for calls that may be repeated, as all functions of the library may.

    Raises:
        StoreUnavailable: Redis stayed away.
    """
    loop = asyncio.get_running_loop()
    give_up, pause = loop.time() + patience_s, FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except StoreUnavailable:
            if loop.time() + pause > give_up:
                raise
        await asyncio.sleep(spread_s(pause))
        pause = min(2 * pause, LONGEST_PAUSE_S)
