"""Whether writes are safe: kept by a replica, and in an append-only file that the disk has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from protocol.call import Call, T, run, run_all, value_of
from protocol.errors import FleetError, SetupError
from protocol.primary import fails_over

NEEDS = (
    "It needs a replica, or an append-only file (appendonly yes) on Valkey or Redis 7.2 and above. "
    "Where each write is synced before it is answered (appendfsync always), plain submits are as safe."
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller asks for.

    Attributes:
        least_replicas: so many must have a write; 0: one where any is connected, and behind Sentinel always.
        timeout_s: how long each of the waits may take: for the disk, then for replicas.
    """

    least_replicas: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Safety:
    """What a server can wait for.

    Attributes:
        synced: it has an append-only file and can tell when the disk has it (`WAITAOF`).
        replicas: how many are connected and up to date but for what is under way.
    """

    synced: bool
    replicas: int


def safety() -> Call[Safety]:
    """Ask the server what it has."""
    return Call(("INFO", "server", "persistence", "replication"), _safety)


def _safety(told: Mapping[str, Any]) -> Safety:
    version = tuple(int(part) for part in str(told["redis_version"]).split(".")[:2])
    replicas = [replica for name, replica in told.items() if name.startswith("slave") and isinstance(replica, dict)]
    online = sum(replica["state"] == "online" for replica in replicas)
    return Safety(told["aof_enabled"] == 1 and version >= (7, 2), online)


@dataclass(frozen=True, slots=True)
class Barrier:
    """What is waited for after writes, on their own connection."""

    synced: bool
    replicas: int
    timeout_ms: int

    def calls(self) -> list[Call[bool]]:
        """Each says whether the writes before it on its connection are safe in its way."""
        synced = Call(("WAITAOF", 1, 0, self.timeout_ms), lambda reply: int(reply[0]) >= 1)
        copied = Call(("WAIT", self.replicas, self.timeout_ms), lambda reply: int(reply) >= self.replicas)
        return [*([synced] if self.synced else []), *([copied] if self.replicas else [])]


async def barrier(redis: Redis, wish: Wish) -> Barrier:
    """What writes on this server can wait for.

    Raises:
        SetupError: nothing.
        FleetError: as `run`.
    """
    found = await run(redis, safety())
    # Behind Sentinel a server without a replica may be one whose replica took its place: what only it has is lost.
    replicas = wish.least_replicas or (1 if fails_over(redis) else min(1, found.replicas))
    if not (found.synced or replicas):
        raise SetupError("durable: this Redis cannot tell when a write is safe", NEEDS)
    return Barrier(found.synced, replicas, round(1000 * wish.timeout_s))


async def run_all_safely(redis: Redis, calls: Sequence[Call[T]], wait: Barrier) -> tuple[list[T | FleetError], bool]:
    """As `run_all`, and whether all that was written is safe: False when the time for it was over.

    Raises:
        FleetError: the connection broke, or the server refuses to wait; any part of the calls may have been done.
    """
    waits = wait.calls()
    results = await run_all(redis, cast("list[Call[T | bool]]", [*calls, *waits]))
    safe = all(value_of(result) for result in results[len(calls) :])
    return cast("list[T | FleetError]", results[: len(calls)]), safe
