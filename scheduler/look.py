"""A look at a shard as its dispatcher sees it, by somebody who does not lead: it changes nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from redis.asyncio import Redis

from protocol import reads
from protocol.call import run, run_all, value_of
from protocol.handle import Shard
from protocol.log import silent
from protocol.outlook import Outlook, published
from protocol.states import Priority
from scheduler.books import Books
from scheduler.policy.view import FleetView
from scheduler.read import Reader, Snapshot
from scheduler.roster import Roster


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen.

    Attributes:
        view: what a round would decide on, less what the leading dispatcher keeps in its memory: assignments that no
            report contains yet.
        depths: how many jobs each lane holds, in the order of the view's lanes.
        outlook: what the leading dispatcher published; None where none ever did.
    """

    snapshot: Snapshot
    view: FleetView
    depths: Sequence[int]
    outlook: Outlook | None


async def look(redis: Redis, shard: Shard) -> Look:
    """Look, without clearing the hint that wakes the dispatcher.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    books = Books()
    reader = Reader(redis, shard, books.prefix_map)
    # Prefixes are read of workers that are known: the second time.
    await reader.read()
    snapshot = await reader.read()
    # Who looks on passes nobody over.
    workers = Roster(books, silent(), math.inf, math.inf).update(snapshot)
    outlook = await run(redis, published(shard))
    depths = await run_all(redis, [reads.lane_depth(shard, priority) for priority in Priority])
    speeds = outlook.speeds if outlook else {}
    known = tuple(replace(worker, speed=speeds.get(worker.id, worker.speed)) for worker in workers)
    view = FleetView(snapshot.lanes, known, holders=books.prefix_map.holders)
    return Look(snapshot, view, [value_of(depth) for depth in depths], outlook)
