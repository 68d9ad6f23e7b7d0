"""Sends checked jobs to Redis, many in a round trip."""

import secrets
import time
from collections.abc import Sequence

from redis.asyncio import Redis

from producer.prepare import Defaults, prepare
from producer.requests import JobRequest, check_kind, model_of
from producer.routing import Routes
from protocol import failpoints
from protocol.call import patiently, run_all
from protocol.durability import Wish, barrier, run_all_safely
from protocol.errors import FleetError, InvalidRequest, NotDurable, StoreUnavailable
from protocol.functions import Submission, Submitted, submit
from protocol.handle import Handle
from telemetry import tracing

JOBS_A_TRIP = 500

Answer = tuple[Handle, Submitted] | FleetError


class Submitter:
    """Checks requests and submits them; an error stands in the place of what it concerns."""

    def __init__(self, redis: Redis, defaults: Defaults) -> None:
        """Submit over `redis`."""
        self._redis = redis
        self._defaults = defaults
        self._routes = Routes(redis)

    async def submit(
        self, requests: Sequence[JobRequest], patience_s: float, durable: Wish | None = None
    ) -> list[Answer]:
        """Submit many; answers in the order of the requests. With `durable`, only once their writes are safe.

        Raises:
            StoreUnavailable: Redis stayed away from the beginning, for `patience_s` seconds; nothing was submitted.
            SetupError: this Redis cannot tell when a write is safe.
        """
        await self._routes.prepare({model for request in requests if (model := model_of(request))}, patience_s)
        answers: list[Answer] = []
        trace = tracing.traceparent()
        for first in range(0, len(requests), JOBS_A_TRIP):
            begun_s = time.time()
            prepared = [self._prepare(request, trace) for request in requests[first : first + JOBS_A_TRIP]]
            sent = await self._send(prepared, patience_s, durable)
            _trace(prepared, sent, begun_s)
            answers += sent
        return answers

    def _prepare(self, request: JobRequest, trace: str) -> Submission | FleetError:
        try:
            check_kind(request)
            if not (model := model_of(request)):
                raise InvalidRequest("model: Field required")
            record = self._routes.find(model)
            return prepare(request, record, self._defaults, secrets.token_hex(8), secrets.token_hex(8), trace)
        except FleetError as error:
            return error

    async def _send(
        self, prepared: Sequence[Submission | FleetError], patience_s: float, durable: Wish | None
    ) -> list[Answer]:
        """One round trip, repeated with the same nonces while Redis is away: a repeat never starts a second run."""
        answers: list[Answer | None] = [job if isinstance(job, FleetError) else None for job in prepared]
        waiting = {index: job for index, job in enumerate(prepared) if isinstance(job, Submission)}

        async def attempt() -> None:
            sent = dict(waiting)
            failpoints.reach("producer.before_submit")
            results = await self._trip(list(sent.values()), durable)
            failpoints.reach("producer.after_submit")
            for (index, job), result in zip(sent.items(), results, strict=True):
                answers[index] = result if isinstance(result, FleetError) else (job.handle, result)
                if not isinstance(result, StoreUnavailable):
                    del waiting[index]
            if waiting:
                raise StoreUnavailable("Redis refused some of the jobs for the moment")

        try:
            await patiently(attempt, patience_s)
        except StoreUnavailable as error:
            for index in waiting:
                answers[index] = error
        return [answer for answer in answers if answer is not None]

    async def _trip(self, jobs: Sequence[Submission], durable: Wish | None) -> list[Submitted | FleetError]:
        calls = [submit(job) for job in jobs]
        if durable is None or not calls:
            return await run_all(self._redis, calls)
        results, safe = await run_all_safely(self._redis, calls, await barrier(self._redis, durable))
        return [
            result if safe or isinstance(result, FleetError) else NotDurable(str(job.handle))
            for job, result in zip(jobs, results, strict=True)
        ]


def _trace(prepared: Sequence[Submission | FleetError], answers: Sequence[Answer], begun_s: float) -> None:
    """A span for each job that is traced: from before its checks to Redis's answer."""
    now_s = time.time()
    for job, answer in zip(prepared, answers, strict=True):
        if isinstance(job, Submission) and tracing.recorded(job.spec.trace):
            about = {"tokenfleet.job": str(job.handle), "tokenfleet.priority": job.priority.value}
            error = answer.code if isinstance(answer, FleetError) else ""
            tracing.span("submit", job.spec.trace, (begun_s, now_s), attributes=about, error=error)
