"""One term of leadership over a shard: what a leader remembers, and the round that it repeats."""

import random
from dataclasses import dataclass
from time import perf_counter

from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from protocol import failpoints
from protocol.handle import Shard
from scheduler.apply import Applier
from scheduler.books import Books
from scheduler.metrics import ShardMetrics
from scheduler.policy.decide import decide
from scheduler.policy.decision import ParkReason
from scheduler.policy.traffic import Traffic
from scheduler.policy.view import FleetView, Lately
from scheduler.read import Reader, Snapshot
from scheduler.record import ShardRecorder
from scheduler.roster import Roster
from scheduler.rules import Rules
from scheduler.scale import Scaler


@dataclass(frozen=True, slots=True)
class Round:
    """How a round ended.

    Attributes:
        leads: False when another dispatcher leads: the term is over.
        again: there is more to do though nothing new happens.
        wake_in_ms: when a batch window closes; None when only news can change the decision.
        backlog: jobs are left waiting because the workers are full.
        reclaiming: a worker that lapsed still holds jobs.
        put_off: jobs that are late were put off.
        spare: room is left that nobody in sight waits for.
    """

    leads: bool
    again: bool
    wake_in_ms: float | None
    backlog: bool
    reclaiming: bool
    put_off: bool
    spare: bool


DEPOSED = Round(leads=False, again=False, wake_in_ms=None, backlog=False, reclaiming=False, put_off=False, spare=False)


class Term:
    """Reads, decides and applies, round after round. The next leader begins with a new one."""

    def __init__(
        self,
        redis: Redis,
        shard: Shard,
        token: str,
        rules: Rules,
        log: FilteringBoundLogger,
        recorder: ShardRecorder | None = None,
        metrics: ShardMetrics | None = None,
    ) -> None:
        self._rules, self._log, self._recorder, self._metrics = rules, log, recorder, metrics
        self._books = Books()
        self._traffic = Traffic()
        self._reader = Reader(redis, shard, self._books.prefix_map, token)
        self._roster = Roster(self._books, log, rules.pass_over_ms, rules.silence_ms)
        self._applier = Applier(redis, shard, token, rules.policy_name, self._books, log, metrics)
        self._scaler = Scaler(redis, shard, rules, self._books.predictions, log)
        self._chance = random.Random()  # noqa: S311 - breaks ties between workers, guards nothing

    def forget(self) -> None:
        """After a failure: nobody knows what was moved."""
        self._reader.forget_all()

    async def round(self, hinted: str = "") -> Round:
        """Read, decide, apply; `hinted` is a job that has just come in.

        Raises:
            FleetError: Redis does not answer, or lacks the function library.
        """
        rules, begun_s = self._rules, perf_counter()
        failpoints.reach("scheduler.before_read")
        snapshot = await self._reader.read(hinted)
        if not snapshot.leads:
            return DEPOSED
        read_s = perf_counter()
        workers, lately, books = self._roster.update(snapshot), self._lately(snapshot), self._books
        view = FleetView(snapshot.lanes, workers, books.ledger.started, lately, books.prefix_map.holders)
        decision = decide(view, snapshot.now_ms, self._chance, rules.policy, rules.targets, rules.window)
        decided_s = perf_counter()
        if self._recorder:
            self._recorder.after(view, snapshot.now_ms, decision)
        applied = await self._applier.apply(decision, snapshot)
        if self._metrics:
            took_s = (read_s - begun_s, decided_s - read_s, perf_counter() - decided_s)
            self._metrics.round(snapshot, decision, took_s)
        self._reader.forget(applied.left)
        if not all(given.priority.online for given in decision.assignments):
            self._traffic.offline_ms = snapshot.now_ms
        if applied.error:
            raise applied.error
        if applied.leads:
            await self._scaler.after(snapshot, view, decision)
        wake_at_ms = decision.wake_at_ms
        waiting = sum(map(len, snapshot.lanes)) - len(applied.left)
        return Round(
            leads=applied.leads,
            again=bool(applied.left or snapshot.unreadable) and snapshot.more,
            wake_in_ms=None if wake_at_ms is None else wake_at_ms - snapshot.now_ms,
            backlog=waiting > 0,
            reclaiming=self._roster.reclaiming(snapshot),
            put_off=any(item.reason is ParkReason.LATE for item in decision.park),
            spare=decision.spare,
        )

    def _lately(self, snapshot: Snapshot) -> Lately:
        """Which kinds of jobs there were, now too."""
        if any(lane[0].priority.online for lane in snapshot.lanes if lane):
            self._traffic.online_ms = snapshot.now_ms
        return self._traffic.lately(snapshot.now_ms)
