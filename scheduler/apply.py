"""Turns a decision into moves, and what Redis answered into the ledger's numbers and the log's lines."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from protocol import failpoints
from protocol.call import run_all
from protocol.errors import FleetError
from protocol.functions import Move, assign
from protocol.functions.assign import JOBS_A_CALL, Refusal
from protocol.handle import Handle, Shard
from protocol.messages import Why
from scheduler.books import Books
from scheduler.metrics import ShardMetrics
from scheduler.policy.decision import Assignment, Decision, Park, ParkReason
from scheduler.policy.ledger import Sent
from scheduler.policy.view import JobView
from scheduler.read import Snapshot
from telemetry import tracing

Answer = int | Refusal | FleetError | None
"""An attempt number, why there is none, that the call failed, or that another leads."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a decision.

    Attributes:
        leads: False when another dispatcher leads this shard.
        left: entries that left their lanes, however.
        error: why some moves failed though Redis answers; their jobs are where they were.
    """

    leads: bool = True
    left: tuple[str, ...] = ()
    error: FleetError | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """A job, its move, and what stands behind that when it is an assignment."""

    job: JobView
    move: Move
    assignment: Assignment | None = None


class Applier:
    """Sends the moves of one shard under one leader's token; `policy` is the name of the one that decided."""

    def __init__(
        self,
        redis: Redis,
        shard: Shard,
        token: str,
        policy: str,
        books: Books,
        log: FilteringBoundLogger,
        metrics: ShardMetrics | None = None,
    ) -> None:
        self._redis, self._shard, self._token, self._policy = redis, shard, token, policy
        self._books, self._log, self._metrics = books, log, metrics

    async def apply(self, decision: Decision, snapshot: Snapshot) -> Applied:
        """Move the jobs, in one round trip.

        Raises:
            StoreUnavailable: any part of the moves may have been done.
        """
        plans = _planned(decision, snapshot, self._policy)
        broken = [Move(member) for member in snapshot.unreadable]
        if not plans and not broken:
            return Applied()
        # Apart from the others, so that whatever is wrong with them stops no good job.
        answers = await self._send([*_chunks([plan.move for plan in plans]), *_chunks(broken)])
        self._trace(plans, answers, snapshot)
        planned = zip(plans, answers, strict=False)
        left = [plan.job.member for plan, answer in planned if self._took(plan, answer, snapshot.now_ms)]
        if self._metrics:
            given = [plan.job for plan, answer in zip(plans, answers, strict=False) if isinstance(answer, int)]
            self._metrics.assigned(given, snapshot.now_ms)
        self._tell_broken(broken, answers[len(plans) :])
        errors = (answer for answer in answers if isinstance(answer, FleetError))
        return Applied(None not in answers, tuple(left), next(errors, None))

    async def _send(self, chunks: Sequence[Sequence[Move]]) -> list[Answer]:
        """One answer for each move, in order."""
        failpoints.reach("scheduler.before_assign")
        replies = await run_all(self._redis, [assign(self._shard, self._token, chunk) for chunk in chunks])
        failpoints.reach("scheduler.after_assign")
        answers: list[Answer] = []
        for chunk, reply in zip(chunks, replies, strict=True):
            answers += reply if isinstance(reply, list) else [reply] * len(chunk)
        return answers

    def _took(self, plan: _Plan, answer: Answer, now_ms: float) -> bool:
        """Whether the job's entry left its lane."""
        job, worker = plan.job, plan.move.worker
        if isinstance(answer, int) and plan.assignment:
            given, books = plan.assignment, self._books
            books.ledger.assigned(worker, answer, Sent(now_ms, given.prompt_tokens, given.work_ms, job.tokens))
            books.speeds.assigned(worker, answer, given.predicted_ms, given.pending_ms)
            books.prefix_map.assigned(worker, job.spec.prefix, now_ms)
            books.predictions.assigned(answer, given.predicted_ms)
            self._log.debug("assigned", job=self._name(job), worker=worker, attempt=answer)
            return True
        if answer == "refused":
            self._log.info("job_refused", job=self._name(job), wait_ms=plan.move.refuse_ms)
            if self._metrics:
                self._metrics.refused(job)
        elif isinstance(answer, str):
            self._log.debug("not_assigned", job=self._name(job), worker=worker, why=answer)
        return answer in ("gone", "expired", "parked", "malformed", "refused")

    def _trace(self, plans: Sequence[_Plan], answers: Sequence[Answer], snapshot: Snapshot) -> None:
        """A span for each traced job that was assigned: from the end of the look to Redis's answer, on its clock."""
        begun_s, taken_s = snapshot.now_ms / 1000, monotonic() - snapshot.seen_s
        for plan, answer in zip(plans, answers, strict=False):
            trace = plan.job.spec.trace
            if tracing.recorded(trace) and isinstance(answer, int):
                about: dict[str, str | int] = {
                    "tokenfleet.job": self._name(plan.job),
                    "tokenfleet.attempt": answer,
                    "tokenfleet.worker": plan.move.worker,
                    "tokenfleet.policy": self._policy,
                }
                tracing.span("assign", trace, (begun_s, begun_s + taken_s), attributes=about)

    def _name(self, job: JobView) -> str:
        """As in all logs and traces."""
        return str(Handle.of(self._shard, job.ref))

    def _tell_broken(self, moves: Sequence[Move], answers: Sequence[Answer]) -> None:
        for move, answer in zip(moves, answers, strict=True):
            if answer == "malformed":
                self._log.warning("job_set_aside", entry=repr(move.member), code="malformed")
            elif answer == "gone":
                self._log.info("entry_removed", entry=repr(move.member))


def _planned(decision: Decision, snapshot: Snapshot, policy: str) -> list[_Plan]:
    """The jobs and their moves: what starts comes first."""
    if not (decision.assignments or decision.park or decision.refusals):
        return []
    by_ref = {job.ref: job for lane in snapshot.lanes for job in lane}
    plans = [
        _Plan(
            by_ref[item.ref],
            Move(by_ref[item.ref].member, item.worker, why=_why(item, snapshot, policy)),
            item,
        )
        for item in decision.assignments
    ]
    plans += [_Plan(by_ref[item.ref], _parked(by_ref[item.ref].member, item)) for item in decision.park]
    return plans + [
        _Plan(by_ref[item.ref], Move(by_ref[item.ref].member, refuse_ms=math.ceil(item.wait_ms)))
        for item in decision.refusals
    ]


def _parked(member: str, item: Park) -> Move:
    return Move(member, park_ms=item.delay_ms, late=item.reason is ParkReason.LATE)


def _why(item: Assignment, snapshot: Snapshot, policy: str) -> Why:
    """For whoever asks later. By label: ids mean nothing once a worker is gone."""
    scores = {snapshot.workers[worker].label: round(ms) for worker, ms in item.why_scores if worker in snapshot.workers}
    return Why(policy=policy, predicted_ms=round(item.predicted_ms), scores=scores)


def _chunks(moves: Sequence[Move]) -> list[Sequence[Move]]:
    return [moves[first : first + JOBS_A_CALL] for first in range(0, len(moves), JOBS_A_CALL)]
