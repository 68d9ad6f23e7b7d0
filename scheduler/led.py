"""What a leader tells of its shards, read when Prometheus asks: a standby tells nothing of what it does not lead."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from time import monotonic
from typing import Any, get_args

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from redis.asyncio import Redis

from protocol import reads, watch
from protocol.call import Call, run_all, value_of
from protocol.errors import FleetError, NotAllowed
from protocol.handle import Shard
from protocol.states import Priority, State, WorkerState
from protocol.watch import Store, Tally, WorkerNow
from scheduler.read import Snapshot

SHARD = ("pool", "shard")
_SUBMITTED_MS = attrgetter("submitted_ms")
LANES_S = 0.5
"""Between two looks through lanes that hold jobs: a leader has a round each tick, and a busy one hundreds a second."""
FRESH_S = 15.0
"""What was read longer ago is told no more: a leader that Redis does not hear does not know how its shard is."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a leader finds when it keeps house.

    Attributes:
        depths: jobs in each lane.
        dead: jobs that are set aside; None where this Redis user may not count them.
        tally: what the functions have counted.
        store: how the server is; None where this Redis user may not ask.
    """

    depths: Mapping[Priority, int]
    dead: int | None
    tally: Tally
    store: Store | None = None


async def look(redis: Redis, shard: Shard) -> Look:
    """Look now, in one round trip.

    Raises:
        FleetError: Redis does not answer.
    """
    calls: list[Call[Any]] = [reads.lane_depth(shard, priority) for priority in Priority]
    calls += [reads.dead_count(shard), watch.tally(shard), watch.store()]
    *depths, dead, tally, store = await run_all(redis, calls)
    by_priority = {priority: value_of(depth) for priority, depth in zip(Priority, depths, strict=True)}
    told = None if isinstance(store, FleetError) else store
    return Look(by_priority, None if isinstance(dead, NotAllowed) else value_of(dead), value_of(tally), told)


class Led:
    """A shard as its leader last saw it."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._look: Look | None = None
        self._workers: Mapping[str, WorkerNow] | None = None
        # By our clock.
        self._since_ms: dict[Priority, float] = {}
        self._next_lanes_s = 0.0
        self._kept_s = self._looked_s = self._at_s = monotonic()

    def kept(self) -> None:
        """Redis has said that the lead is ours."""
        self._kept_s = monotonic()

    def looked(self, look: Look) -> None:
        """Keep what was found while keeping house."""
        self._look, self._looked_s = look, monotonic()

    def saw(self, snapshot: Snapshot) -> None:
        """Keep what only a round sees: not its jobs, which may go at once."""
        self._workers, self._at_s = snapshot.workers, monotonic()
        lanes = {lane[0].priority: lane for lane in snapshot.lanes if lane}
        if self._at_s >= self._next_lanes_s or lanes.keys() != self._since_ms.keys():
            self._next_lanes_s, ours_ms = self._at_s + LANES_S, 1000 * self._at_s - snapshot.now_ms
            self._since_ms = {which: ours_ms + min(map(_SUBMITTED_MS, lane)) for which, lane in lanes.items()}

    @property
    def leads(self) -> bool:
        """Whether Redis has said lately that the lead is ours."""
        return _fresh(self._kept_s)

    @property
    def look(self) -> Look | None:
        """The last one; None before the first round, since what is known then is half of it, and once either is old."""
        return self._look if self._workers is not None and _fresh(self._looked_s) and _fresh(self._at_s) else None

    def workers(self, state: str) -> int:
        """How many are in it."""
        # The dispatcher goes on meanwhile: a copy stays as it is.
        found = list(self._workers.values()) if self._workers else []
        return sum(now.state == state for now in found)

    def oldest_s(self, priority: Priority) -> float:
        """How long a lane's oldest job has waited by now; 0 for an empty lane."""
        since_ms = self._since_ms.get(priority)
        return 0.0 if since_ms is None else max(0.0, monotonic() - since_ms / 1000)


def _fresh(since_s: float) -> bool:
    return monotonic() - since_s <= FRESH_S


@dataclass(frozen=True, slots=True)
class _Family:
    """One metric: its further label with all values, and how each is read."""

    name: str
    meaning: str
    value: Callable[[Led, Look, str], float | None]
    label: str = ""
    values: Iterable[str] = ("",)
    counter: bool = False


def _delayed(_: Led, look: Look, priority: str) -> int:
    return max(0, look.tally.waiting[Priority(priority)] - look.depths[Priority(priority)])


def _of_store(value: Callable[[Store], float]) -> Callable[[Led, Look, str], float | None]:
    return lambda _, look, __: value(look.store) if look.store else None


_LANES = ("priority", tuple(Priority))
_ENDS = ("state", tuple(state for state in State if state.terminal))
_STATES = ("state", get_args(WorkerState))
_FAMILIES = (
    _Family("lane_jobs", "Jobs in a lane.", lambda _, look, which: look.depths[Priority(which)], *_LANES),
    _Family(
        "lane_oldest_seconds",
        "For how long the oldest job of a lane has waited, of those that the dispatcher sees: the first 256.",
        lambda led, _, which: led.oldest_s(Priority(which)),
        *_LANES,
    ),
    _Family(
        "delayed_jobs", "Jobs out of their lane for a while: delayed, put off, to be tried again.", _delayed, *_LANES
    ),
    _Family("dead_letters", "Jobs that are set aside now.", lambda _, look, __: look.dead),
    _Family("workers", "Workers with a lease.", lambda led, _, which: led.workers(which), *_STATES),
    _Family(
        "jobs_ended",
        "Jobs by how they ended.",
        lambda _, look, which: look.tally.ended[State(which)],
        *_ENDS,
        counter=True,
    ),
    _Family(
        "set_aside", "Jobs that were set aside as dead letters.", lambda _, look, __: look.tally.dead, counter=True
    ),
    _Family(
        "strikes",
        "Attempts whose engine or worker died under them.",
        lambda _, look, __: look.tally.strikes,
        counter=True,
    ),
    _Family("failed_tries", "Attempts that their engine failed.", lambda _, look, __: look.tally.tries, counter=True),
    _Family(
        "leases_lost",
        "Workers that were silent until their lease ended.",
        lambda _, look, __: look.tally.lost,
        counter=True,
    ),
    _Family(
        "jobs_taken_back",
        "Jobs taken back from workers that had fallen silent before they began.",
        lambda _, look, __: look.tally.taken,
        counter=True,
    ),
    _Family("redis_memory_bytes", "Memory that Redis uses.", _of_store(lambda store: store.used_bytes)),
    _Family("redis_memory_limit_bytes", "Its `maxmemory`; 0 for no limit.", _of_store(lambda store: store.most_bytes)),
    _Family("redis_append_only", "1 where it keeps an append-only file.", _of_store(lambda store: store.append_only)),
    _Family(
        "redis_append_only_ok",
        "0 when it could not write or rewrite that file the last time.",
        _of_store(lambda store: store.written),
    ),
)


class LedShards(Collector):
    """Of the shards in `led` that are led now."""

    def __init__(self, led: Mapping[Shard, Led]) -> None:
        self._led = led

    def collect(self) -> Iterator[Metric]:
        """Each family, also an empty one."""
        seen = [(shard, led, look) for shard, led in list(self._led.items()) if (look := led.look)]
        for family in _FAMILIES:
            labels = (*SHARD, family.label) if family.label else SHARD
            kind = CounterMetricFamily if family.counter else GaugeMetricFamily
            metric = kind(f"tokenfleet_{family.name}", family.meaning, labels=labels)
            for shard, led, look in seen:
                for which in family.values:
                    own = (which,) if family.label else ()
                    if (value := family.value(led, look, which)) is not None:
                        metric.add_metric((shard.pool, str(shard.number), *own), value)
            yield metric
