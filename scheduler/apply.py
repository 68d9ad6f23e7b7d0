"""Turns a decision into moves, and what Redis answered into the ledger's numbers and the log's lines."""

from collections.abc import Sequence
from dataclasses import dataclass

from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from protocol.call import run_all
from protocol.errors import FleetError
from protocol.functions import Move, assign
from protocol.functions.assign import JOBS_A_CALL, Refusal
from protocol.handle import Shard
from scheduler.policy.decision import Decision
from scheduler.policy.ledger import Ledger
from scheduler.policy.view import JobView
from scheduler.read import Snapshot

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


class Applier:
    """Sends the moves of one shard under one leader's token."""

    def __init__(self, redis: Redis, shard: Shard, token: str, ledger: Ledger, log: FilteringBoundLogger) -> None:
        self._redis, self._shard, self._token = redis, shard, token
        self._ledger, self._log = ledger, log

    async def apply(self, decision: Decision, snapshot: Snapshot) -> Applied:
        """Move the jobs, in one round trip.

        Raises:
            StoreUnavailable: any part of the moves may have been done.
        """
        jobs, moves = _planned(decision, snapshot)
        broken = [Move(member) for member in snapshot.unreadable]
        if not moves and not broken:
            return Applied()
        # Apart from the others, so that whatever is wrong with them stops no good job.
        answers = await self._send([*_chunks(moves), *_chunks(broken)])
        planned = zip(jobs, moves, answers, strict=False)
        prompts = {item.ref: item.prompt_tokens for item in decision.assignments}
        left = [job.member for job, move, answer in planned if self._took(job, move, answer, prompts.get(job.ref, 0))]
        self._tell_broken(broken, answers[len(moves) :])
        errors = (answer for answer in answers if isinstance(answer, FleetError))
        return Applied(None not in answers, tuple(left), next(errors, None))

    async def _send(self, chunks: Sequence[Sequence[Move]]) -> list[Answer]:
        """One answer for each move, in order."""
        replies = await run_all(self._redis, [assign(self._shard, self._token, chunk) for chunk in chunks])
        answers: list[Answer] = []
        for chunk, reply in zip(chunks, replies, strict=True):
            answers += reply if isinstance(reply, list) else [reply] * len(chunk)
        return answers

    def _took(self, job: JobView, move: Move, answer: Answer, prompt_tokens: int) -> bool:
        """Whether the job's entry left its lane."""
        if isinstance(answer, int):
            self._ledger.assigned(move.worker, answer, prompt_tokens, job.tokens)
            self._log.debug("assigned", job=job.ref, worker=move.worker, attempt=answer)
            return True
        if isinstance(answer, str):
            self._log.debug("not_assigned", job=job.ref, worker=move.worker, why=answer)
        return answer in ("gone", "expired", "parked", "malformed")

    def _tell_broken(self, moves: Sequence[Move], answers: Sequence[Answer]) -> None:
        for move, answer in zip(moves, answers, strict=True):
            if answer == "malformed":
                self._log.warning("job_set_aside", entry=repr(move.member), why="its description can't be read")
            elif answer == "gone":
                self._log.info("entry_removed", entry=repr(move.member), why="no queued job stands behind it")


def _planned(decision: Decision, snapshot: Snapshot) -> tuple[list[JobView], list[Move]]:
    """The jobs and, beside them, their moves: what starts comes first."""
    if not decision.assignments and not decision.park:
        return [], []
    by_ref = {job.ref: job for lane in snapshot.lanes for job in lane}
    jobs = [by_ref[item.ref] for item in decision.assignments] + [by_ref[item.ref] for item in decision.park]
    goals = [(item.worker, 0) for item in decision.assignments] + [("", item.delay_ms) for item in decision.park]
    return jobs, [Move(job.member, worker, park_ms) for job, (worker, park_ms) in zip(jobs, goals, strict=True)]


def _chunks(moves: Sequence[Move]) -> list[Sequence[Move]]:
    return [moves[first : first + JOBS_A_CALL] for first in range(0, len(moves), JOBS_A_CALL)]
