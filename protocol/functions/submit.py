"""`submit`: idempotency and limits; stores a job, scores it, places it, announces it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol import keys
from protocol.allowance import Allowance, Meter
from protocol.call import Arg, Call, fcall
from protocol.errors import ConflictingId, QueueFull, QuotaExceeded, RateLimited, TooLarge
from protocol.handle import Handle
from protocol.limits import Bucket
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
    failure_stays: bool = False
    """A job of this id and body that failed is found as it ended; it would run anew."""
    bucket: Bucket | None = None
    """The API key that it counts for; None: no key's limits apply."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """Where the job stands; `created` is False when the id named a job that was there already."""

    state: State
    attempt: int
    created: bool
    allowance: Allowance | None = None
    """What the job's API key has left; None without a bucket."""


def submit(job: Submission) -> Call[Submitted]:
    """Submit one job; repeat it freely with the same nonce.

    Raises (when run):
        ConflictingId: the id belongs to a living or completed job with another body.
        QueueFull: the lane or the tenant's half of it is full.
        QuotaExceeded: the tenant has as many jobs waiting, or spent as many tokens, as it may.
        RateLimited: the same of its API key. No limit was touched.
        TooLarge: the job alone needs more than its API key may have.
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
    how = int(job.once) + 2 * int(job.failure_stays)
    bucket = _bucket_args(job)
    if job.bucket:
        names.append(keys.bucket(shard, handle.tenant, job.bucket.key_id))
    return fcall("submit", names, (*args, *times, job.reply_to, how, *bucket), _parse)


def _bucket_args(job: Submission) -> tuple[Arg, ...]:
    if job.bucket is None:
        return ()
    most = job.bucket.limits
    limits = (most.requests_a_minute, most.tokens_a_minute, most.jobs, most.bytes)
    return (job.bucket.key_id, *limits, job.spec.prompt_tokens, int(job.spec.stream))


def _parse(reply: list[Any]) -> Submitted:
    match reply:
        case [b"ok", state, attempt, created, *left]:
            return Submitted(State(state.decode()), int(attempt), bool(created), _allowance(left) if left else None)
        case [b"full", scope, limit]:
            msg = f"the queue is full: the {scope.decode()} has its limit of {limit} jobs waiting"
            raise QueueFull(msg, "Nothing was stored; try again later.")
        case [b"quota", what, limit, retry_ms]:
            per = "jobs waiting" if what == b"jobs" else "tokens a minute"
            raise QuotaExceeded(f"the tenant's quota of {limit} {per} is used up", retry_ms / 1000)
        case [b"limited", kind, limit, remaining, retry_ms, *left]:
            raise RateLimited(kind.decode(), limit, remaining, retry_ms / 1000, _allowance(left))
        case [b"over", kind, limit, needed]:
            per = "tokens, and this key may use {} a minute" if kind == b"tokens" else "bytes, and this key may send {}"
            raise TooLarge(f"the request needs {needed} {per.format(limit)}", "Shorten it, or lower max_tokens.")
        case _:
            msg = "this id belongs to a job with another body"
            raise ConflictingId(msg, "Choose another id, or cancel that job first.")


def _allowance(left: Sequence[int]) -> Allowance:
    """From limit, remaining and ms until reset, of requests and of tokens."""
    meters = [Meter(limit, remaining, reset_ms / 1000) for limit, remaining, reset_ms in (left[:3], left[3:])]
    return Allowance(*(meter if meter.limit else None for meter in meters))
