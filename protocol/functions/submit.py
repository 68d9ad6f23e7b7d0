"""`submit`: idempotency and limits; stores a job, scores it, places it, announces it."""

from dataclasses import dataclass
from typing import Any

from protocol import keys
from protocol.call import Call, fcall
from protocol.errors import ConflictingId, QueueFull, QuotaExceeded
from protocol.handle import Handle
from protocol.messages import JobSpec
from protocol.states import Priority, State


@dataclass(frozen=True, slots=True)
class Submission:
    """A job on its way into Redis. Durations, not times: Redis has the only clock."""

    handle: Handle
    priority: Priority
    spec: JobSpec
    body: bytes
    digest: str
    nonce: str
    deadline_ms: int
    keep_ms: int
    delay_ms: int = 0
    reply_to: str = ""
    once: bool = False
    """Whoever reads its result forgets it."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """Where the job stands; `created` is False when the id named a job that was there already."""

    state: State
    attempt: int
    created: bool


def submit(job: Submission) -> Call[Submitted]:
    """Submit one job; repeat it freely with the same nonce.

    Raises (when run):
        ConflictingId: the id belongs to a living or completed job with another body.
        QueueFull: the lane or the tenant's half of it is full.
        QuotaExceeded: the tenant has as many jobs waiting, or spent as many tokens, as it may.
        StoreFull: Redis is at its memory limit.
    """
    shard, handle = job.handle.shard, job.handle
    names = [
        keys.job(handle),
        keys.body(handle),
        keys.result(handle),
        keys.tokens(handle),
        keys.lane(shard, job.priority),
        keys.due(shard),
        keys.deadlines(shard),
        keys.clock(shard),
        keys.events(shard),
        keys.tenant(shard, handle.tenant),
        keys.dead(shard),
    ]
    if job.reply_to:
        names.append(keys.done(shard, handle.tenant, job.reply_to))
    spec = job.spec.model_dump_json(exclude_defaults=True)
    args = (handle.ref, job.priority, job.nonce, job.digest, job.body, spec, job.spec.cost_tokens)
    times = (job.delay_ms, job.deadline_ms, job.keep_ms)
    return fcall("submit", names, (*args, *times, job.reply_to, int(job.once)), _parse)


def _parse(reply: list[Any]) -> Submitted:
    match reply:
        case [b"ok", state, attempt, created]:
            return Submitted(State(state.decode()), int(attempt), bool(created))
        case [b"full", scope, limit]:
            msg = f"the queue is full: the {scope.decode()} has its limit of {limit} jobs waiting"
            raise QueueFull(msg, "Nothing was stored; try again later.")
        case [b"quota", what, limit, retry_ms]:
            per = "jobs waiting" if what == b"jobs" else "tokens a minute"
            raise QuotaExceeded(f"the tenant's quota of {limit} {per} is used up", retry_ms / 1000)
        case _:
            msg = "this id belongs to a job with another body"
            raise ConflictingId(msg, "Choose another id, or cancel that job first.")
