"""The loop of one shard: keep the lead, sleep until something happens, then read → decide → apply."""

import asyncio
import math
import secrets
from contextlib import suppress
from dataclasses import replace

from redis.asyncio import Redis

from protocol import failpoints, library, watch
from protocol.call import Call, run
from protocol.cancellation import cancelled
from protocol.errors import FleetError, LibraryMissing, NotAllowed, StoreUnavailable
from protocol.functions import Ticked, tick
from protocol.handle import Shard
from protocol.log import get_logger
from protocol.store import BLOCK_MS
from scheduler.led import look
from scheduler.metrics import Metrics, ShardMetrics
from scheduler.outage import Backoff, Outage
from scheduler.record import Recording
from scheduler.rules import Rules
from scheduler.term import Round, Term

GATHER_S = 0.002
"""While all workers are full, freed slots are gathered for so long: one round for all, and a fraction of any job."""
LOOK_S = 5.0
"""Between two looks for Prometheus, which asks no more often: each takes Redis and us a millisecond."""
TICK_FULL = 100
"""A count as high means that there may be more to keep house of."""


class ShardLoop:
    """Leads one shard, or stands by until the lead is free.

    Args:
        redis: a client of its own: it sleeps in a blocking read.
        shard: which one.
        rules: how to dispatch.
        outage: shared by the loops of one process.
        recording: where decisions are written; None for nowhere.
        metrics: told of what happens; None for nobody.
    """

    def __init__(
        self,
        redis: Redis,
        shard: Shard,
        rules: Rules,
        outage: Outage,
        recording: Recording | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._redis, self._shard, self._rules, self._outage = redis, shard, rules, outage
        self._recording = recording
        self._metrics = metrics.of(shard) if metrics else None
        self._token = secrets.token_hex(8)
        self._log = get_logger("scheduler").bind(shard=str(shard))
        self._term: Term | None = None
        self._next_tick = self._next_look = 0.0
        self._backoff = Backoff()
        # Whether jobs may be put off that could come back, and whether there is room for them.
        self._put_off = self._recalls = False
        self._hinted = ""
        # Whether this term has told that it may not count everything.
        self._denied = False

    @property
    def leads(self) -> bool:
        """Whether it was the leader when it last looked."""
        return self._term is not None

    async def run(self) -> None:
        """Dispatch until cancelled; whatever fails is tried again."""
        while not cancelled():
            try:
                await self._step()
            except FleetError as error:
                await self._recover(error)
            except Exception:  # noqa: BLE001 - a defect that one shard's data brings out must not stop the others
                self._log.exception("round_crashed")
                self._count_failure()
                await self._pause()
            else:
                self._outage.over()
                self._backoff.reset()

    async def resign(self) -> None:
        """After `run` was cancelled: let a standby lead at once, not only when the lead runs out."""
        if self._term:
            with suppress(FleetError):
                await run(self._redis, self._tick_call(lead_ms=1))
            self._stand_by("stopped")

    async def _step(self) -> None:
        if _now() >= self._next_tick:
            await self._tick()
        if self._term is None:
            await asyncio.sleep(self._next_tick - _now())
            return
        hinted, self._hinted = self._hinted, ""
        done = await self._term.round(hinted)
        # Not after a tick: that has brought back what was parked as long ago as the last look, and this round parks it.
        if self._metrics and _now() >= self._next_look:
            self._next_look = _now() + LOOK_S
            await self._look(self._metrics)
        self._put_off |= done.put_off
        self._recalls = done.spare and self._put_off
        if not done.leads:
            self._stand_by("another_leads")
        elif done.reclaiming or self._recalls:
            self._next_tick = 0.0
        elif not done.again:
            await self._sleep(done)

    async def _sleep(self, done: Round) -> None:
        """Until a hint comes, a batch window closes, or it is time to tick."""
        wake_at = self._next_tick
        if done.wake_in_ms is not None:
            failpoints.reach("scheduler.in_window")
            wake_at = min(wake_at, _now() + done.wake_in_ms / 1000)
        if done.backlog:
            await asyncio.sleep(GATHER_S)
        left_ms = math.ceil(1000 * (wake_at - _now()))
        if left_ms > 0:
            self._hinted = await run(self._redis, watch.hint(self._shard, min(left_ms, BLOCK_MS)))

    async def _tick(self) -> None:
        began = _now()
        recalls, self._recalls = self._recalls, False
        ticked = await run(self._redis, self._tick_call(self._rules.times.lead_ms, recall=recalls))
        if recalls:
            self._put_off = ticked.recalled > 0
        if ticked.leads and self._term is None:
            self._log.info("leader_taken")
            # The leader before may have.
            self._put_off = True
            recorder = self._recording.of(self._shard, self._rules) if self._recording else None
            if self._metrics:
                self._metrics.lead_taken()
                self._next_look, self._denied = 0.0, False
            self._term = Term(self._redis, self._shard, self._token, self._rules, self._log, recorder, self._metrics)
        elif not ticked.leads and self._term:
            self._stand_by("another_leads")
        if ticked.leads and self._metrics:
            self._metrics.lead_kept()
        if ticked.expired:
            self._log.info("jobs_expired", count=ticked.expired)
        if ticked.ripened:
            self._log.debug("jobs_ripened", count=ticked.ripened)
        self._next_tick = began + self._until_next_tick_s(ticked)

    async def _look(self, metrics: ShardMetrics) -> None:
        """Whatever an ACL keeps from being counted stops no dispatch, and is told once a term."""
        denied = False
        try:
            found = await look(self._redis, self._shard)
            metrics.looked(found)
            denied = found.dead is None
        except NotAllowed:
            denied = True
        except FleetError:
            pass
        if denied and not self._denied:
            self._log.warning("count_denied")
            self._denied = True

    def _tick_call(self, lead_ms: int, *, recall: bool = False) -> Call[Ticked]:
        rules = self._rules
        times = replace(rules.times, lead_ms=lead_ms)
        return tick(self._shard, self._token, times, rules.limits, rules.quotas, recall=recall)

    def _until_next_tick_s(self, ticked: Ticked) -> float:
        if TICK_FULL in (ticked.ripened, ticked.expired) or ticked.reclaimed:
            return 0.0
        due_s = math.inf if ticked.next_due_ms is None else ticked.next_due_ms / 1000
        return min(self._rules.tick_s, due_s)

    def _stand_by(self, why: str) -> None:
        self._log.info("leader_lost", why=why)
        if self._metrics:
            self._metrics.lead_lost()
        self._term = None

    async def _recover(self, error: FleetError) -> None:
        """Nobody knows what was done: read everything anew, after a pause."""
        self._count_failure()
        if self._term:
            self._term.forget()
        if isinstance(error, StoreUnavailable):
            self._outage.began(error)
        elif isinstance(error, LibraryMissing):
            self._log.warning("library_missing")
            with suppress(FleetError):
                await library.load(self._redis)
        else:
            self._log.error("round_failed", code=error.code, error=str(error))
        await self._pause()

    def _count_failure(self) -> None:
        if self._metrics:
            self._metrics.failed()

    async def _pause(self) -> None:
        self._next_tick = 0.0
        await asyncio.sleep(self._backoff.pause_s())


def _now() -> float:
    return asyncio.get_running_loop().time()
