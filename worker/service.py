"""The worker as a service: its engine, and one life after the other."""

import asyncio
import os

from protocol import store
from protocol.call import run
from protocol.cancellation import afterwards
from protocol.clock import SystemClock
from protocol.errors import FleetError, NotAllowed
from protocol.functions import leave
from protocol.log import get_logger
from protocol.settings import Settings
from worker.device import open_device
from worker.duty import Duty
from worker.keeper import EngineKeeper
from worker.life import Life, new_life
from worker.load import LoadMeter, memory_limit_bytes
from worker.metrics import Metrics
from worker.options import WorkerOptions
from worker.session import Ending, Session
from worker.startup import wait_for_store
from worker.states import StateClock
from worker.station import Station
from worker.stop import StopSignals
from worker.waiting import unless, until_answered

ONE_LABEL = (
    "A user of `tokenfleet acl --worker LABEL` runs the worker with that --label alone: "
    "1 to 64 of a-z, 0-9, '_' and '-'."
)
LEAVE_S = 3.0
"""How long handing back may take at the end; what Redis does not hear of comes back when the lease ends."""
LEAVE_AT_ONCE_S = 1.0
_log = get_logger("worker")


async def run_worker(
    settings: Settings, options: WorkerOptions, *, redis_url: str, stop: StopSignals, metrics: Metrics | None = None
) -> Ending:
    """Work until told to stop; says how that went.

    Args:
        settings: times and limits.
        options: the engine and what it serves.
        redis_url: where.
        stop: drains at the first signal, ends at once at the second.
        metrics: told of what happens; None for nobody.

    Raises:
        SetupError: the engine can't run, or another pool serves the model.
        StoreUnavailable: Redis did not answer within the patience; once it did, its absence is waited out.
        LibraryMissing: nobody loaded the function library within the patience.
        NotAllowed: the Redis user or its password is refused, or it is for a worker with another label.
    """
    shard, clock = options.place(), SystemClock()
    states = StateClock(clock)
    redis = store.connect(redis_url)
    try:
        nobody = new_life(options.label).id
        try:
            await unless(stop.drain, wait_for_store(redis, redis_url, shard, nobody, settings.redis_patience_s))
        except NotAllowed as error:
            raise NotAllowed(error.message, f"{error.hint} {ONE_LABEL}") from None
        return await _serve(
            Station(
                settings=settings,
                options=options,
                redis_url=redis_url,
                redis=redis,
                shard=shard,
                keeper=EngineKeeper(options.engine),
                meter=LoadMeter(options.engine, open_device(os.environ), memory_limit_bytes(), clock),
                duty=Duty(standby=options.standby),
                states=states,
                stop=stop,
                clock=clock,
                metrics=metrics,
            )
        )
    finally:
        await options.engine.close()
        await redis.aclose()
        _log.info("worker_stopped")


async def _serve(station: Station) -> Ending:
    """Live until told to stop, or until the engine can't be kept."""
    keeping = asyncio.ensure_future(station.keeper.run())
    living = asyncio.ensure_future(_live(station))
    try:
        await asyncio.wait([keeping, living], return_when=asyncio.FIRST_COMPLETED)
        if keeping.done():
            keeping.result()
        return await living
    finally:
        for task in (living, keeping):
            task.cancel()
        await asyncio.wait([living, keeping])


async def _live(station: Station) -> Ending:
    """One life after the other, until a signal."""
    while not station.stop.drain.is_set():
        life = new_life(station.options.label)
        ending = await _live_once(station, life)
        if ending in (Ending.DRAINED, Ending.STOPPED):
            return ending
        if station.metrics:
            station.metrics.lease_lost(ending.value)
        _log.warning("life_ended", why=ending.value, worker=life.id, label=life.label)
    return Ending.STOPPED if station.stop.now.is_set() else Ending.DRAINED


async def _live_once(station: Station, life: Life) -> Ending:
    """From joining to leaving."""
    ending = Ending.STOPPED
    try:
        ending = await Session(station, life).run()
    finally:
        if ending is not Ending.RECLAIMED:
            await afterwards(_leave(station, life, ending))
    return ending


async def _leave(station: Station, life: Life, ending: Ending) -> None:
    """Hand back what the life still holds: once Redis is back, or at the end as far as it answers."""

    async def hand_back() -> bool:
        while not await run(station.redis, leave(station.shard, life.id)):
            continue
        return True

    if ending is Ending.LEASE_OVER and await unless(station.stop.drain, until_answered(hand_back)):
        return
    try:
        async with asyncio.timeout(LEAVE_S if ending is Ending.DRAINED else LEAVE_AT_ONCE_S):
            await until_answered(hand_back)
    except (TimeoutError, FleetError) as error:
        _log.warning("not_left", worker=life.id, label=life.label, why=type(error).__name__)
