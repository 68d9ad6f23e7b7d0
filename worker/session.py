"""One life of a worker, from joining to its end."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

from protocol.errors import FleetError
from protocol.log import get_logger
from protocol.messages import InboxEntry, LoadReport, ModelRecord
from protocol.states import WorkerState
from worker.attempt import Runner
from worker.attempts import Attempts
from worker.cadence import Cadence
from worker.commands import Commands
from worker.followers import Followers
from worker.heartbeat import Heartbeat, News, Pace
from worker.inbox import Inbox
from worker.life import LeaseGuard, Life
from worker.options import DEFAULT_SLOTS
from worker.outbox import Outbox
from worker.refusals import Refusals
from worker.startup import register_models
from worker.station import Station
from worker.verdict import GiveBack
from worker.waiting import until_answered

WATCH_S = 0.1
"""How often time limits and the lease are looked at."""
FOLLOWERS_S = 0.25
"""How often the followers of jobs that ask for it are counted."""
_log = get_logger("worker")


class Ending(Enum):
    """Why a life ended."""

    DRAINED = "drained"
    STOPPED = "stopped"
    RECLAIMED = "reclaimed"
    LEASE_OVER = "lease_over"


class Session:
    """Joins, works, and ends; what is left in the inbox is the caller's to hand back."""

    def __init__(self, station: Station, life: Life) -> None:
        self._station, self._life = station, life
        settings, redis, shard = station.settings, station.redis, station.shard
        self._cadence = Cadence(settings.beat_s, settings.report_s)
        self._attempts = Attempts(redis, shard, life.id, station.clock, self._accepting, self._cadence.soon)
        self._outbox = Outbox(redis, settings.frame_s, self._attempts.over)
        self._refusals = Refusals(station.clock, self._cadence.now)
        runner = Runner(
            station.engine,
            lambda: station.keeper.capacity,
            self._outbox,
            settings.max_tries,
            station.clock,
            self._attempts.spoke,
            self._refusals,
            metrics=station.metrics,
        )
        self._attempts.serve(runner, self._outbox, settings.time_limit_s, station.engine.prefixes)
        self._inbox = Inbox(redis, shard, life.id, self._take, station.clock)
        self._guard = LeaseGuard(station.clock, settings.lease_s)
        pace = Pace(settings.beat_s, settings.lease_s)
        self._heartbeat = Heartbeat(station.redis_url, shard, life, pace, station.clock, self._guard, self._on_answer)
        self._commands = Commands(
            station.keeper,
            station.duty,
            station.stop.drain,
            self._attempts.idle,
            self._heartbeat.acknowledge,
            self._cadence.now,
        )
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._joined = self._registered = False

    async def run(self) -> Ending:
        """Work until there is a reason to end, and abort what still runs then.

        Raises:
            SetupError: another pool serves one of its models.
        """
        station = self._station
        gone = GiveBack("strike", why="its engine died")
        station.keeper.tell(self._cadence.now, lambda: self._attempts.stop_all(gone))
        parts: list[Coroutine[Any, Any, None]] = [self._inbox.run(), self._outbox.run(), self._publish()]
        parts += [self._watch(), self._watch_followers(), self._commands.run(), self._drain_when_told()]
        tasks = [asyncio.create_task(part) for part in parts]
        registering = asyncio.create_task(self._register())
        self._heartbeat.start()
        try:
            ends: list[asyncio.Future[Any]] = [self._ending, *tasks]
            await asyncio.wait({registering, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if registering.done():
                registering.result()
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            return await self._ending
        finally:
            await self._close([*tasks, registering])

    async def _close(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self._attempts.close()
        self._cadence.stop()
        await self._heartbeat.stop()

    async def _register(self) -> None:
        """Say what the worker serves, once its engine has told."""
        station = self._station
        await station.keeper.loaded.wait()
        context_tokens = station.keeper.capacity.context_tokens
        served = ModelRecord(pool=station.shard.pool, shards=station.options.shards, context_tokens=context_tokens)
        await until_answered(lambda: register_models(station.redis, station.models, served))
        self._registered = True
        self._cadence.now()

    @property
    def _state(self) -> WorkerState:
        keeper = self._station.keeper
        if self._station.stop.drain.is_set():
            return "draining"
        if keeper.phase == "down":
            return "unhealthy"
        if keeper.phase == "asleep":
            return "asleep"
        if keeper.phase == "loading" or not self._registered:
            return "loading"
        return "warm" if self._station.duty.standby else "active"

    def _accepting(self) -> bool:
        return self._state == "active" and not self._ending.done()

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
            _log.info("worker_joined", worker=self._life.id, label=self._life.label, shard=str(self._station.shard))
        self._inbox.compare(held, len(self._attempts))

    async def _take(self, entries: Sequence[InboxEntry]) -> None:
        await self._attempts.take([entry for entry in entries if entry.kind == "assign"])
        for entry in entries:
            if entry.kind == "abort":
                self._attempts.abort(entry)
                self._heartbeat.acknowledge(entry.entry_id)
            elif entry.kind == "command":
                self._commands.take(entry)

    async def _publish(self) -> None:
        """Report the load with each beat, and at once when the state changes or a job comes, speaks or ends."""
        station = self._station
        while True:
            state = self._state
            if (lasted_s := station.states.enter(state)) is not None:
                _log.info("state_changed", now=state, last_for_s=round(lasted_s, 3))
            # The engine has heard what was asked for, and may hold less: what waits inside it can't be overtaken.
            slots = station.keeper.capacity.slots or station.options.slots or DEFAULT_SLOTS
            report = await self._report()
            slots = self._refusals.slots(slots, [attempt.begun_s for attempt in self._attempts.running()])
            if station.metrics:
                station.metrics.reported(state, report, station.keeper.restarts)
            self._heartbeat.publish(News(state, slots, report, station.models, station.engine.prefixes()))
            await self._cadence.turn()

    async def _report(self) -> LoadReport:
        station, capacity = self._station, self._station.keeper.capacity
        # Read before the engine is asked: what goes over to it meanwhile is counted twice, never missed.
        figures = self._attempts.figures(station.settings.target_token_ms, capacity.stream_tokens)
        report = await station.meter.read(figures, capacity, refusing=self._refusals.last)
        duty = station.duty
        own = {"state_s": station.states.seconds(), "answered": duty.answered, "refusal": duty.refusal}
        return report.model_copy(update=own | {"reserve": duty.reserve})

    async def _watch(self) -> None:
        while True:
            if self._guard.over:
                _log.warning("lease_over", worker=self._life.id, label=self._life.label)
                self._end(Ending.LEASE_OVER)
            self._attempts.sweep()
            await asyncio.sleep(WATCH_S)

    async def _watch_followers(self) -> None:
        followers = Followers(self._station.redis, self._station.clock)
        while True:
            with suppress(FleetError):
                await followers.look(self._attempts.running())
            await asyncio.sleep(FOLLOWERS_S)

    async def _drain_when_told(self) -> None:
        stop, drain_s = self._station.stop, self._station.settings.drain_s
        await stop.drain.wait()
        self._cadence.now()
        _log.info("worker_draining", running=len(self._attempts), within_s=drain_s)
        waits = [asyncio.ensure_future(event.wait()) for event in (self._attempts.idle, stop.now)]
        try:
            await asyncio.wait(waits, timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._end(Ending.STOPPED if stop.now.is_set() else Ending.DRAINED)
