"""One life of a worker, from joining to its end."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from redis.asyncio import Redis

from protocol.clock import Clock
from protocol.handle import Shard
from protocol.log import get_logger
from protocol.messages import InboxEntry
from protocol.settings import Settings
from worker.attempt import Runner
from worker.attempts import Attempts
from worker.engine.base import Engine
from worker.heartbeat import Heartbeat, News, Pace
from worker.inbox import Inbox
from worker.keeper import EngineKeeper
from worker.life import LeaseGuard, Life
from worker.load import LoadMeter
from worker.options import DEFAULT_SLOTS
from worker.outbox import Outbox
from worker.stop import StopSignals
from worker.verdict import GiveBack

WATCH_S = 0.1
"""How often time limits and the lease are looked at."""
_log = get_logger("worker")


class Ending(Enum):
    """Why a life ended."""

    DRAINED = "drained"
    STOPPED = "stopped"
    RECLAIMED = "reclaimed"
    LEASE_OVER = "lease_over"


@dataclass(frozen=True, slots=True)
class Station:
    """What stays the same over a worker's lives.

    Attributes:
        redis: for all but the heartbeat, which has its own connection to `redis_url`.
        slots: jobs at once; 0 takes what the engine can hold.
    """

    settings: Settings
    redis_url: str
    redis: Redis
    shard: Shard
    engine: Engine
    keeper: EngineKeeper
    meter: LoadMeter
    stop: StopSignals
    clock: Clock
    slots: int


class Session:
    """Joins, works, and ends; what is left in the inbox is the caller's to hand back."""

    def __init__(self, station: Station, life: Life) -> None:
        self._station, self._life = station, life
        settings, redis, shard = station.settings, station.redis, station.shard
        self._attempts = Attempts(redis, shard, life.id, station.clock, self._accepting)
        self._outbox = Outbox(redis, settings.frame_s, self._attempts.over)
        runner = Runner(station.engine, self._outbox, settings.max_tries, station.clock)
        self._attempts.serve(runner, self._outbox, settings.time_limit_s)
        self._inbox = Inbox(redis, shard, life.id, self._take)
        self._guard = LeaseGuard(station.clock, settings.lease_s)
        pace = Pace(settings.beat_s, settings.lease_s)
        self._heartbeat = Heartbeat(station.redis_url, shard, life, pace, station.clock, self._guard, self._on_answer)
        self._changed = asyncio.Event()
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._joined = False

    async def run(self) -> Ending:
        """Work until there is a reason to end, and abort what still runs then."""
        station = self._station
        station.keeper.tell(self._changed.set, lambda: self._attempts.stop_all(GiveBack("strike")))
        parts: list[Coroutine[Any, Any, None]] = [self._inbox.run(), self._outbox.run(), self._publish()]
        parts += [self._watch(), self._drain_when_told()]
        tasks = [asyncio.create_task(part) for part in parts]
        self._heartbeat.start()
        try:
            ends: list[asyncio.Future[Any]] = [self._ending, *tasks]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            return await self._ending
        finally:
            await self._close(tasks)

    async def _close(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self._attempts.close()
        await self._heartbeat.stop()

    @property
    def _state(self) -> str:
        if self._station.stop.drain.is_set():
            return "draining"
        return "ready" if self._station.keeper.healthy else "unhealthy"

    def _accepting(self) -> bool:
        return self._state == "ready" and not self._ending.done()

    def _end(self, ending: Ending) -> None:
        if not self._ending.done():
            self._ending.set_result(ending)

    def _on_answer(self, held: int | None) -> None:
        """A beat was answered."""
        if held is None:
            self._end(Ending.RECLAIMED)
            return
        if not self._joined:
            self._joined = True
            _log.info("worker_joined", id=self._life.id, label=self._life.label, shard=str(self._station.shard))
        self._inbox.compare(held, len(self._attempts))

    async def _take(self, entries: Sequence[InboxEntry]) -> None:
        await self._attempts.take([entry for entry in entries if entry.kind == "assign"])
        for entry in entries:
            if entry.kind == "assign":
                continue
            if entry.kind == "abort":
                self._attempts.abort(entry)
            elif entry.command == "drain":
                self._station.stop.drain.set()
            else:
                _log.warning("command_unknown", command=entry.command[:32])
            self._heartbeat.acknowledge(entry.entry_id)

    async def _publish(self) -> None:
        """Report the load with each beat, and at once when the state changes."""
        station = self._station
        while True:
            capacity = station.keeper.capacity
            # Read before the engine is asked: what goes over to it meanwhile is counted twice, never missed.
            fresh, taken = self._attempts.fresh(), self._attempts.taken
            report = await station.meter.read(fresh, capacity, taken)
            self._heartbeat.publish(News(self._state, station.slots or capacity.slots or DEFAULT_SLOTS, report))
            self._changed.clear()
            # No `wait_for`: before Python 3.12 it can swallow a cancellation.
            with suppress(TimeoutError):
                async with asyncio.timeout(station.settings.beat_s):
                    await self._changed.wait()

    async def _watch(self) -> None:
        while True:
            if self._guard.over:
                _log.warning("lease_over", then="everything is aborted", id=self._life.id)
                self._end(Ending.LEASE_OVER)
            self._attempts.sweep()
            await asyncio.sleep(WATCH_S)

    async def _drain_when_told(self) -> None:
        stop, drain_s = self._station.stop, self._station.settings.drain_s
        await stop.drain.wait()
        self._changed.set()
        _log.info("draining", running=len(self._attempts), at_most_s=drain_s)
        waits = [asyncio.ensure_future(event.wait()) for event in (self._attempts.idle, stop.now)]
        try:
            await asyncio.wait(waits, timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._end(Ending.STOPPED if stop.now.is_set() else Ending.DRAINED)
