"""The scheduler as a service: one loop for each shard of each pool, as the `models` hash names them."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from redis.asyncio import Redis

from protocol import library, reads, store
from protocol.call import patiently, run
from protocol.cancellation import cancelled
from protocol.errors import FleetError, StoreUnavailable
from protocol.handle import Shard
from protocol.log import get_logger
from protocol.settings import Settings
from scheduler.metrics import Metrics
from scheduler.outage import Outage
from scheduler.record import Recording
from scheduler.rules import Rules, rules_of
from scheduler.shard_loop import ShardLoop

LOOK_S = 1.0
"""How often the pools are looked up: a new one is served within so long."""
_log = get_logger("scheduler")


async def run_scheduler(
    settings: Settings,
    *,
    redis_url: str,
    pools: Collection[str] | None = None,
    recording: Recording | None = None,
    metrics: Metrics | None = None,
) -> None:
    """Dispatch until cancelled, then give up the leads.

    Args:
        settings: limits, targets, times, and the policy's name.
        redis_url: where.
        pools: which ones; None for all that are or will be registered.
        recording: where decisions are written; None for nowhere.
        metrics: told of what happens; None for nobody.

    Raises:
        SetupError: the URL or the policy is wrong.
        StoreUnavailable: Redis did not answer within the patience; once it did, its absence is waited out.
    """
    rules = rules_of(settings)
    redis = store.connect(redis_url)
    try:
        where = store.redacted(redis_url)
        patience_s = settings.redis_patience_s
        await store.wait_until_up(
            redis, patience_s, lambda: _log.warning("waiting_for_redis", url=where, patience_s=patience_s)
        )
        await patiently(lambda: library.load(redis), patience_s)
        _log.info("scheduler_started", url=where, pools=sorted(pools) if pools else "all", policy=settings.policy)
        await _Pools(redis, redis_url, rules, pools, recording, metrics).serve()
    finally:
        await redis.aclose()
        _log.info("scheduler_stopped")


@dataclass(frozen=True, slots=True)
class _Running:
    """A shard's loop, its task and its client."""

    loop: ShardLoop
    task: asyncio.Task[None]
    redis: Redis

    async def end(self) -> None:
        """After the task was cancelled."""
        await self.loop.resign()
        await self.redis.aclose()


class _Pools:
    """Starts and stops loops as pools come and go."""

    def __init__(
        self,
        redis: Redis,
        redis_url: str,
        rules: Rules,
        pools: Collection[str] | None,
        recording: Recording | None,
        metrics: Metrics | None,
    ) -> None:
        self._redis, self._redis_url, self._rules, self._pools = redis, redis_url, rules, pools
        self._recording, self._metrics = recording, metrics
        self._outage = Outage(_log)
        self._running: dict[Shard, _Running] = {}

    async def serve(self) -> None:
        """Follow the pools until cancelled."""
        try:
            while not cancelled():
                try:
                    await self._look()
                except StoreUnavailable as error:
                    self._outage.began(error)
                except FleetError as error:
                    _log.error("pools_unknown", code=error.code, error=str(error))
                await asyncio.sleep(LOOK_S)
        finally:
            await self._stop(list(self._running))

    async def _look(self) -> None:
        records = await run(self._redis, reads.models())
        wanted = {
            Shard(record.pool, number)
            for record in records.values()
            if self._pools is None or record.pool in self._pools
            for number in range(record.shards)
        }
        for shard in wanted - self._running.keys():
            self._start(shard)
        await self._stop([shard for shard in self._running if shard not in wanted])

    def _start(self, shard: Shard) -> None:
        redis = store.connect(self._redis_url)
        loop = ShardLoop(redis, shard, self._rules, self._outage, self._recording, self._metrics)
        self._running[shard] = _Running(loop, asyncio.create_task(loop.run()), redis)

    async def _stop(self, shards: list[Shard]) -> None:
        stopped = [self._running.pop(shard) for shard in shards]
        for one in stopped:
            one.task.cancel()
        if stopped:
            await asyncio.wait([one.task for one in stopped])
        await asyncio.gather(*(one.end() for one in stopped))
        if self._metrics:
            for shard in shards:
                self._metrics.forget(shard)
