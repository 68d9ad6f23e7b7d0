"""`tick`: takes or keeps the lead; ripens what is due, expires what is late, reclaims what lapsed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocol import keys
from protocol.call import Arg, Call, fcall
from protocol.handle import Shard
from protocol.states import Priority

RECALLED = 32
"""So many jobs that were put off come back at once: no more than may stay in sight."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """What one tick did; each count is at most 100, so a full one means: tick again."""

    leads: bool
    ripened: int
    expired: int
    reclaimed: int
    next_due_ms: int | None
    """Until the next delayed job ripens."""
    recalled: int


@dataclass(frozen=True, slots=True)
class TickTimes:
    """The dispatcher's time limits, in ms of Redis's clock."""

    lead_ms: int = 2_000
    lease_ms: int = 10_000
    """What a worker's lease becomes after a gap."""
    gap_ms: int = 3_000
    """A longer silence between two ticks is a gap: nobody is to blame for it."""
    quiet_ms: int = 600
    """A worker that is silent for so long loses what it has not begun."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """What one tenant may at most; 0: no limit."""

    jobs: int = 0
    """Waiting, in all lanes of a shard."""
    tokens: int = 0
    """Submitted in a minute, prompts and outputs as estimated."""


NO_QUOTAS = Quotas()


def tick(
    shard: Shard,
    token: str,
    times: TickTimes,
    limits: Mapping[Priority, int],
    quotas: Quotas = NO_QUOTAS,
    *,
    recall: bool = False,
) -> Call[Ticked]:
    """Keep house for one shard as the holder of `token`; `limits` are jobs waiting in each lane.

    With `recall` the next of the jobs that were put off for others' sake come back to their places now.
    """
    names = [
        keys.leader(shard),
        keys.clock(shard),
        keys.workers(shard),
        keys.due(shard),
        keys.deadlines(shard),
        keys.events(shard),
        *(keys.lane(shard, priority) for priority in Priority),
        keys.dead(shard),
    ]
    bounds = [limits[priority] for priority in Priority]
    limited = (times.lead_ms, times.lease_ms, times.gap_ms, times.quiet_ms)
    args: tuple[Arg, ...] = (token, *limited, *bounds, quotas.jobs, quotas.tokens, RECALLED if recall else 0)
    return fcall("tick", names, args, _parse)


def _parse(reply: list[Any]) -> Ticked:
    lead, ripened, expired, reclaimed, wait, recalled = (int(item) for item in reply)
    return Ticked(bool(lead), ripened, expired, reclaimed, None if wait < 0 else wait, recalled)
