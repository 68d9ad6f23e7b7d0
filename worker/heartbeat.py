"""The lease's keeper: a thread with a connection of its own, which a busy event loop cannot starve."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from redis import Redis

from protocol import store
from protocol.call import run_sync
from protocol.clock import Clock
from protocol.errors import FleetError
from protocol.functions import Beat, beat
from protocol.handle import Shard
from protocol.log import get_logger
from protocol.messages import LoadReport
from protocol.states import WorkerState
from worker.life import LeaseGuard, Life

STUCK_S = 60.0
"""An event loop that has not moved for so long does not keep its lease: whatever it runs is lost to it."""
LATE = 1.5
"""The loop sets the pace; when it is busy, the thread beats by itself after so many beats' time."""
END_S = 1.0
"""How long a beat under way is waited for: an older one does no harm, since it can't join anew."""
ITEMS_A_BEAT = 500
"""Of each list: a beat must not hold Redis up."""
_log = get_logger("worker")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds."""

    beat_s: float
    lease_s: float


@dataclass(frozen=True, slots=True)
class News:
    """What the next beats tell.

    Attributes:
        models: the names that it serves.
        prefixes: the hashes of the prompt prefixes that its engine holds; the beats tell what has changed.
    """

    state: WorkerState
    slots: int
    report: LoadReport
    models: tuple[str, ...] = ()
    prefixes: frozenset[str] = frozenset()


class Heartbeat:
    """Beats from `start` to `stop`: joins, renews the lease, publishes, acknowledges.

    Args:
        redis_url: where; the thread connects by itself.
        shard: which workers it joins.
        life: as whom.
        pace: how often, and for how long each beat holds.
        clock: for the guard and for the loop's signs of life.
        guard: told of every renewal.
        on_answer: called in the event loop with the number of jobs that Redis counts, None when we were reclaimed.
    """

    def __init__(
        self,
        redis_url: str,
        shard: Shard,
        life: Life,
        pace: Pace,
        clock: Clock,
        guard: LeaseGuard,
        on_answer: Callable[[int | None], None],
    ) -> None:
        self._redis_url, self._shard, self._life, self._pace = redis_url, shard, life, pace
        self._clock, self._guard, self._on_answer = clock, guard, on_answer
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._news: News | None = None
        self._moved_s = clock.monotonic()
        self._lock = threading.Lock()
        self._acknowledged: dict[str, None] = {}
        self._told: frozenset[str] = frozenset()
        self._away = self._stuck = False

    def start(self) -> None:
        """Begin; nothing is sent before the first `publish`."""
        self._thread.start()

    def publish(self, news: News) -> None:
        """Tell Redis now. From the event loop only: it shows that the loop moves."""
        self._moved_s = self._clock.monotonic()
        self._news = news
        self._wake.set()

    def acknowledge(self, entry_id: str) -> None:
        """Have an inbox entry deleted with one of the next beats."""
        with self._lock:
            self._acknowledged[entry_id] = None

    async def stop(self) -> None:
        """Beat no more."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, END_S)

    def _run(self) -> None:
        redis = store.connect_sync(self._redis_url)
        try:
            while True:
                self._wake.wait(self._pace.beat_s * LATE)
                self._wake.clear()
                if self._stopping.is_set():
                    return
                if self._news and self._loop_moves():
                    self._beat(redis, self._news)
        finally:
            redis.close()

    def _beat(self, redis: Redis, news: News) -> None:
        message, sent_s = self._message(news), self._clock.monotonic()
        try:
            held = run_sync(redis, beat(self._shard, message))
        except FleetError as error:
            self._missed(error)
        else:
            self._answered(held, sent_s, message)

    def _message(self, news: News) -> Beat:
        with self._lock:
            acknowledged = list(self._acknowledged)[:ITEMS_A_BEAT]
        added, removed = self._changed(news.prefixes)
        return Beat(
            self._life.id,
            self._life.label,
            news.state,
            news.slots,
            int(self._pace.lease_s * 1000),
            news.report,
            join=not self._guard.joined,
            models=news.models,
            acknowledged=acknowledged,
            added=added,
            removed=removed,
        )

    def _changed(self, prefixes: frozenset[str]) -> tuple[list[str], list[str]]:
        """What to add to the hashes that Redis knows of, and what to take away; a long list takes several beats."""
        if prefixes == self._told:
            return [], []
        added, removed = prefixes - self._told, self._told - prefixes
        return list(islice(added, ITEMS_A_BEAT)), list(islice(removed, ITEMS_A_BEAT))

    def _answered(self, held: int | None, sent_s: float, message: Beat) -> None:
        if message.added or message.removed:
            self._told = (self._told | frozenset(message.added)) - frozenset(message.removed)
        if held is not None:
            self._guard.renewed(sent_s)
        with self._lock:
            for entry_id in message.acknowledged:
                self._acknowledged.pop(entry_id, None)
        if self._away:
            self._away = False
            _log.info("beats_answered_again")
        with suppress(RuntimeError):  # the loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(self._on_answer, held)

    def _missed(self, error: FleetError) -> None:
        if not self._away:
            self._away = True
            _log.warning("beats_unanswered", code=error.code, error=str(error))

    def _loop_moves(self) -> bool:
        still_s = self._clock.monotonic() - self._moved_s
        if still_s < STUCK_S:
            self._stuck = False
            return True
        if not self._stuck:
            self._stuck = True
            _log.error("event_loop_stuck", for_s=round(still_s))
        return False
