"""Asks Redis and this host, and has the answers judged."""

import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from redis.asyncio import Redis

from producer.overview_reader import OverviewReader
from protocol import library, overview_reads, reads
from protocol.call import Call, run, run_all, value_of
from protocol.errors import FleetError, NotAllowed, ProtocolViolation, StoreUnavailable
from protocol.server_facts import anyone_may_do_anything, server_config, server_facts, server_facts_of_all
from protocol.settings import Settings
from tokenfleet.doctor import fleet, here, server
from tokenfleet.doctor.finding import Finding, fail, warn
from tokenfleet.doctor.rights import of_rights, roles_for, user_of

T = TypeVar("T")
LOOKS = 3
"""The quickest of so many answers tells the way and the clock."""
_AS_OPERATOR = "Run the doctor as the operator's user to have it checked."


async def examine(
    redis: Redis, settings: Settings, *, role: str = "", wall_s: Callable[[], float] = time.time
) -> list[Finding]:
    """All findings, in the order in which they are best mended.

    Args:
        redis: a client of `settings.store_url`.
        settings: as the role has them that is to run here.
        role: what its user is to do; by default what it is called after.
        wall_s: this host's clock, in seconds since 1970.
    """
    found: list[Finding] = []
    try:
        async for finding in _all(redis, settings, role, wall_s):
            found.append(finding)  # noqa: PERF401 - what was found before an error is kept
    except FleetError as error:
        lost = fail("reach", error.message, error.hint or "Is it the right address?")
        found = [*(found or [here.of_way(settings.store_url)]), lost, here.of_store(settings.store)]
    return found


async def _all(redis: Redis, settings: Settings, role: str, wall_s: Callable[[], float]) -> AsyncIterator[Finding]:
    for finding in await _way_and_clock(redis, wall_s):
        yield finding
    yield here.of_way(settings.store_url)
    of_server = await _server(redis)
    for finding in of_server:
        yield finding
    if any(finding.check == "primary" and finding.level == "fail" for finding in of_server):
        # It has the primary's library and fleet, and refuses writes before it looks at rights.
        yield here.of_store(settings.store)
        return
    user = user_of(settings.store_url)
    for finding in await of_rights(redis, user, roles_for(user, role, settings.tenant)):
        yield finding
    yield await _library(redis)
    for finding in await _fleet(redis):
        yield finding
    yield here.of_store(settings.store)


async def _way_and_clock(redis: Redis, wall_s: Callable[[], float]) -> list[Finding]:
    looks = []
    await run(redis, reads.store_time_ms())  # connects
    for _ in range(LOOKS):
        began, wall = time.perf_counter(), wall_s()
        now_ms = await run(redis, reads.store_time_ms())
        seconds = time.perf_counter() - began
        # Redis tells whole ms: half of one is as good as any.
        looks.append((seconds, (now_ms + 0.5) / 1000 - (wall + seconds / 2)))
    seconds, skew_s = min(looks, key=lambda look: look[0])
    return [here.of_round_trip(seconds), here.of_skew(skew_s, seconds / 2)]


async def _server(redis: Redis) -> list[Finding]:
    facts = await _seen(redis, server_facts())
    if facts is None:
        facts = await _seen(redis, server_facts_of_all())
    config = await _seen(redis, server_config())
    anyone = await _seen(redis, anyone_may_do_anything())
    found: list[Finding] = []
    if facts is None:
        found.append(warn("server", "its version, memory and append-only file can't be seen", _AS_OPERATOR))
    else:
        found += server.of_facts(facts)
    if config is None:
        found.append(warn("config", "how it syncs, what followers may leave unread, can't be seen", _AS_OPERATOR))
    else:
        found += server.of_config(config, appends=facts is None or facts.appends)
    if config is not None and anyone is not None:
        found.append(here.of_door(config, anyone=anyone))
    return found


async def _seen(redis: Redis, call: Call[T]) -> T | None:
    """What it says; None where this user may not ask, or a hosted server does not tell."""
    try:
        return await run(redis, call)
    except (NotAllowed, ProtocolViolation):
        return None


async def _library(redis: Redis) -> Finding:
    try:
        state = await library.state(redis)
    except NotAllowed:
        return warn("library", "the function library can't be seen", _AS_OPERATOR)
    except ProtocolViolation:
        return fail("library", "this server has no functions: nothing can be submitted", server.NEW_ENOUGH)
    return server.of_library(state)


async def _fleet(redis: Redis) -> list[Finding]:
    try:
        seen = await OverviewReader(redis).look()
        shards = [shard.shard for shard in seen.shards]
        marks = await run_all(redis, [overview_reads.standby_ms(shard) for shard in shards]) if shards else []
        standbys = {shard: value_of(mark) for shard, mark in zip(shards, marks, strict=True)}
    except StoreUnavailable:
        raise
    except FleetError:
        return [warn("fleet", "leaders, workers and lanes can't be seen", _AS_OPERATOR)]
    return list(fleet.of_fleet(seen, standbys))
