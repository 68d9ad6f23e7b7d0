"""Applies scaling in the leading dispatcher's rounds: promotes and puts back standby workers, publishes the outlook."""

import math
import statistics
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from protocol import functions, reads
from protocol.call import Call, run, run_all, value_of
from protocol.errors import FleetError, StoreUnavailable
from protocol.functions.command import Command
from protocol.handle import Shard
from protocol.outlook import Outlook, publish
from protocol.watch import WorkerNow
from scheduler.policy.decision import Decision, ParkReason
from scheduler.policy.predictions import Predictions
from scheduler.policy.scaling import Sight, Standby, State, look, refused
from scheduler.policy.view import FleetView
from scheduler.read import Snapshot
from scheduler.rules import Rules

LOADS_KEPT = 32
"""Cold starts that are remembered: the last ones."""
UNLOADED = ("starting", "loading")


class Scaler:
    """Looks at a shard once a second for as long as a term lasts."""

    def __init__(
        self, redis: Redis, shard: Shard, rules: Rules, predictions: Predictions, log: FilteringBoundLogger
    ) -> None:
        self._redis, self._shard, self._rules, self._log = redis, shard, rules, log
        self._predictions = predictions
        self._state = State()
        self._next_ms = -math.inf
        self._started = self._sent_tokens = 0
        self._online_tokens: list[int] = []
        self._turned_away = 0
        self._loads: OrderedDict[str, float] = OrderedDict()
        self._entry = ""
        self._failed = False

    async def after(self, snapshot: Snapshot, view: FleetView, decision: Decision) -> None:
        """A round is over: count what it sent, and look when it is time.

        Raises:
            StoreUnavailable: Redis does not answer. Other errors are logged; dispatch goes on.
        """
        self._count(view, decision)
        if snapshot.now_ms < self._next_ms:
            return
        self._next_ms = snapshot.now_ms + self._rules.pace.every_ms
        try:
            await self._look(snapshot, view)
        except StoreUnavailable:
            raise
        except FleetError as error:
            if not self._failed:
                self._log.warning("scaling_failed", code=error.code, error=str(error))
            self._failed = True
        else:
            self._failed = False

    def _count(self, view: FleetView, decision: Decision) -> None:
        self._turned_away += sum(item.priority.online for item in decision.refusals)
        self._turned_away += decision.late + sum(item.reason is ParkReason.LATE for item in decision.park)
        if not decision.assignments:
            return
        self._started += len(decision.assignments)
        self._sent_tokens += sum(item.prompt_tokens for item in decision.assignments)
        given = {item.ref for item in decision.assignments if item.priority.online}
        if given:
            self._online_tokens += [job.spec.prompt_tokens for lane in view.lanes for job in lane if job.ref in given]

    async def _look(self, snapshot: Snapshot, view: FleetView) -> None:
        self._learn_loads(snapshot)
        depths = await self._depths(view)
        if self._said_no(snapshot):
            self._state = refused(self._state)
        standbys, reserves = self._standing_by(snapshot) if self._rules.scale else ([], [])
        given = (self._started, self._sent_tokens, self._online_tokens, self._turned_away)
        sight = Sight(view, depths, standbys, reserves, *given)
        plan, self._state = look(sight, snapshot.now_ms, self._state, self._rules.targets, self._rules.pace)
        self._started, self._sent_tokens, self._online_tokens, self._turned_away = 0, 0, [], 0
        if plan.promote:
            await self._tell("promote", plan.promote, snapshot, plan.wait_ms)
        if plan.rest:
            await self._tell("rest", plan.rest, snapshot, plan.wait_ms)
        await run(self._redis, publish(self._shard, self._outlook(snapshot, view, plan.wanted, plan.wait_ms)))

    async def _depths(self, view: FleetView) -> Sequence[int]:
        lanes = [lane[0].priority for lane in view.lanes if lane]
        calls: list[Call[Any]] = [reads.lane_depth(self._shard, priority) for priority in lanes]
        depths = iter([value_of(depth) for depth in await run_all(self._redis, calls)] if calls else ())
        return [next(depths) if lane else 0 for lane in view.lanes]

    def _standing_by(self, snapshot: Snapshot) -> tuple[list[Standby], list[str]]:
        """Whom to promote, and whom to put back. A worker that an operator let sleep is no standby of ours."""
        leased = {worker: now for worker, now in snapshot.workers.items() if snapshot.leases[worker] > snapshot.now_ms}
        reserves = {worker: now for worker, now in leased.items() if now.report and now.report.reserve}
        standbys = [
            Standby(worker, now.state == "warm") for worker, now in reserves.items() if now.state in ("warm", "asleep")
        ]
        return standbys, [worker for worker, now in reserves.items() if now.state == "active"]

    async def _tell(self, word: Command, worker: str, snapshot: Snapshot, wait_ms: float) -> None:
        entry = await run(self._redis, functions.command(self._shard, worker, word))
        self._entry = entry or ""
        label, wait = snapshot.workers[worker].label, round(wait_ms) if math.isfinite(wait_ms) else None
        self._log.info("worker_told", command=word, worker=worker, label=label, online_wait_ms=wait)
        if entry is None:
            self._state = refused(self._state)

    def _said_no(self, snapshot: Snapshot) -> bool:
        now: WorkerNow | None = snapshot.workers.get(self._state.promoting)
        report = now.report if now else None
        return bool(report and report.refusal and report.answered == self._entry)

    def _learn_loads(self, snapshot: Snapshot) -> None:
        for worker, now in snapshot.workers.items():
            spent = now.report.state_s if now.report else {}
            if worker not in self._loads and now.state not in UNLOADED and "loading" in spent:
                self._loads[worker] = spent["loading"]
                if len(self._loads) > LOADS_KEPT:
                    self._loads.popitem(last=False)

    def _outlook(self, snapshot: Snapshot, view: FleetView, wanted: int, wait_ms: float) -> Outlook:
        learned_ms = self._state.promotion_ms
        return Outlook(
            at_ms=int(snapshot.now_ms),
            policy=self._rules.policy_name,
            workers_wanted=wanted,
            wait_ms=round(wait_ms, 1) if math.isfinite(wait_ms) else None,
            cold_start_s=round(statistics.median(self._loads.values()), 3) if self._loads else None,
            promotion_s=None if learned_ms is None else round(learned_ms / 1000, 3),
            starts_per_s=round(1000 * self._state.starts, 3),
            observed=tuple(self._predictions.observed()),
            speeds={worker.id: round(worker.speed, 3) for worker in view.workers if worker.speed != 1},
        )
