"""`/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`: a job each, answered as a stream or as a whole."""

from dataclasses import dataclass
from time import perf_counter

from starlette.requests import Request
from starlette.responses import Response

from producer.gateway.answers import REQUEST_ID, ended, failed
from producer.gateway.auth import Grant
from producer.gateway.failures import closing_down, failure_of, path_of
from producer.gateway.ratelimits import left_of
from producer.gateway.reading import read_object
from producer.gateway.relay import Relay
from producer.gateway.state import Gateway, gateway_of
from producer.gateway.stays import Ended
from producer.gateway.streaming import EventStream, Follower
from producer.gateway.wishes import Wishes
from producer.jobs import Job
from producer.requests import JobRequest
from protocol.call import value_of
from protocol.errors import FleetError, UnknownModel, WaitTimeout
from protocol.messages import Endpoint
from protocol.wire import JsonObject
from telemetry import tracing

TRACEPARENT = "traceparent"
"""The header that names the span which a request belongs to: https://www.w3.org/TR/trace-context/."""
FOLLOWED_AGAIN_S = 10.0
"""A gateway that dies leaves its clients at least so long to follow their jobs elsewhere."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, read and allowed."""

    body: JsonObject
    wishes: Wishes
    unfollowed_s: float | None
    job: JobRequest

    @property
    def usage(self) -> bool:
        """Whether the stream ends with a chunk of its usage."""
        options = self.body.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True


async def infer(request: Request, endpoint: Endpoint) -> Response:
    """Submit what the request asks for and answer with what comes of it.

    Raises:
        FleetError: it is refused; nothing was stored.
        ClientDisconnect: the client left before the request was complete.
    """
    asked_s, gateway = perf_counter(), gateway_of(request)
    grant = await gateway.admit(request)
    body = await read_object(request, gateway.fleet.settings.max_body_bytes, gateway.options.body_s)
    # Not before the body: it may take longer than the gateway has.
    gateway.check_open()
    wishes = Wishes.of(request.headers, body.pop("fleet", None))
    asked = _allowed(gateway, grant, endpoint, body, wishes, tracing.of_request(request.headers.get(TRACEPARENT, "")))
    (submitted,) = await gateway.fleet.submit_many([asked.job])
    job = value_of(submitted)
    if asked.job.stream:
        relay = Relay(job.handle, "openai", asked.usage)
        return EventStream(gateway, Follower(relay, asked.unfollowed_s, job.created), left_of(job.allowance), asked_s)
    return await _awaited(gateway, request, asked, job)


def _allowed(gateway: Gateway, grant: Grant, endpoint: Endpoint, body: JsonObject, wishes: Wishes, trace: str) -> Asked:
    """The job that a request asks for.

    Raises:
        UnknownModel: the key may not use it: to its bearer it is not there.
        Forbidden: the key may not submit such a job.
    """
    model = body.get("model")
    if isinstance(model, str) and model and not grant.may_use(model):
        raise UnknownModel("there is no such model, or this key may not use it")
    streams = body.get("stream") is True
    unfollowed_s = wishes.unfollowed_s(gateway.options.leave_s)
    # The worker's own look is for gateways that died; those that live look themselves.
    orphaned_s = None if unfollowed_s is None else max(FOLLOWED_AGAIN_S, unfollowed_s)
    job = JobRequest(
        body=body,
        endpoint=endpoint,
        priority=wishes.priority_for(grant),
        deadline=wishes.deadline,
        tenant=wishes.tenant_for(grant),
        stream=streams,
        best_effort=wishes.best_effort,
        time_limit=wishes.time_limit,
        cancel_unfollowed=orphaned_s,
        # Told that it goes on, its client asks later whether it has ended: that is no following.
        follow_for=None if streams else wishes.wait_s(gateway.options.wait_s),
        id=wishes.id or "",
        bucket=grant.bucket,
        trace=trace,
    )
    return Asked(body, wishes, unfollowed_s, job)


async def _awaited(gateway: Gateway, request: Request, asked: Asked, job: Job) -> Response:
    """The whole answer. When it takes too long the job goes on; it ends when the client leaves."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    headers = {REQUEST_ID: str(job.handle), **left_of(job.allowance)}
    try:
        async with gateway.stays.of(job.handle, gone):
            outcome = await job.result(asked.wishes.wait_s(gateway.options.wait_s))
        gateway.metrics.ended(outcome)
        return ended(outcome, headers)
    except WaitTimeout as error:
        return failed(failure_of(WaitTimeout(error.message, f"It goes on: GET {path_of(job.handle)}")), headers)
    except FleetError as error:
        return failed(failure_of(error), headers)
    except Ended as why:
        if why.reason == "left" or not asked.wishes.id:
            # After a close the client tries again, elsewhere: as a new job where it has named none.
            gateway.leavings.note(job.handle, asked.unfollowed_s)
        return failed(failure_of(closing_down()), headers)
