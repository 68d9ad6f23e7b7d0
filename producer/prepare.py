"""From what a user asks to what `submit` stores: every check that needs no look at the queue."""

from dataclasses import dataclass
from datetime import UTC, datetime

from producer import bodies, estimate, requests
from producer.requests import JobRequest
from producer.routing import shard_of
from producer.scope import ALL, Scope
from protocol.errors import InvalidRequest
from protocol.functions import Submission
from protocol.handle import Handle, check_name, check_own_id
from protocol.limits import Bucket
from protocol.messages import JobSpec, ModelRecord
from protocol.traceparent import is_traceparent
from protocol.wire import JsonObject


@dataclass(frozen=True, slots=True)
class Defaults:
    """What applies where a request says nothing."""

    tenant: str
    deadline_s: float
    keep_s: float
    max_body_bytes: int
    delete_on_read: bool = False
    scope: Scope = ALL


def prepare(
    request: JobRequest, record: ModelRecord, defaults: Defaults, own_id: str, nonce: str, trace: str = ""
) -> Submission:
    """Check one request and make it ready to be stored; `own_id` and `trace` serve when the request has none.

    Raises:
        InvalidRequest: a field breaks a rule; nothing was stored.
        InvalidId: the id, tenant or reply name has characters that it must not have.
        TooLarge: the body is over the limit.
    """
    body = requests.body_of(request)
    endpoint = requests.endpoint_of(request, body)
    checked = bodies.check(endpoint, body, defaults.max_body_bytes)
    tenant = check_name("tenant", defaults.scope.tenant(request.tenant, defaults.tenant))
    guess = estimate.estimate(endpoint, body, tenant)
    _check_context(guess.least_tokens, record.context_tokens)
    own_id = check_own_id(request.id or own_id)
    deadline_s, delay_s = _times(request, defaults)
    return Submission(
        handle=Handle(shard_of(record, tenant, own_id), tenant, own_id),
        priority=requests.priority_of(request),
        spec=JobSpec(
            model=body["model"],
            endpoint=endpoint,
            stream=_streams(request, body),
            prompt_tokens=guess.prompt_tokens,
            output_tokens=guess.output_tokens,
            prefix=guess.prefix,
            time_limit_s=_time_limit_s(request),
            best_effort=_flag("best_effort", request.best_effort),
            unfollowed_s=_seconds("cancel_unfollowed", request.cancel_unfollowed),
            followed_s=_followed_s(request, delay_s),
            trace=_trace(request, trace),
        ),
        body=checked.encoded,
        digest=checked.digest,
        nonce=nonce,
        deadline_ms=int(deadline_s * 1000),
        keep_ms=int(_keep_s(request, defaults) * 1000),
        delay_ms=int(delay_s * 1000),
        reply_to=check_name("reply name", request.reply_to) if request.reply_to else "",
        once=_deletes_on_read(request, defaults),
        failure_stays=_flag("failure_stays", request.failure_stays),
        bucket=_bucket(request),
    )


def _check_context(least_tokens: int, context_tokens: int) -> None:
    if 0 < context_tokens < least_tokens:
        message = f"the prompt and max_tokens need at least {least_tokens} tokens; the model takes {context_tokens}"
        raise InvalidRequest(message, "Shorten the prompt or lower max_tokens.")


def _times(request: JobRequest, defaults: Defaults) -> tuple[float, float]:
    """Deadline and delay in seconds from now."""
    deadline_s = defaults.deadline_s
    if request.deadline is not None:
        deadline_s = requests.deadline_s(request.deadline, datetime.now(UTC))
    delay_s = requests.seconds("delay", request.delay)
    if delay_s >= deadline_s:
        raise InvalidRequest("delay: the job would begin after its deadline")
    return deadline_s, delay_s


def _time_limit_s(request: JobRequest) -> float | None:
    if request.time_limit is None:
        return None
    return requests.seconds("time_limit", request.time_limit, least=0.001)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name}: true or false is required")
    return value


def _keep_s(request: JobRequest, defaults: Defaults) -> float:
    return defaults.keep_s if request.keep is None else requests.seconds("keep", request.keep, least=0.001)


def _deletes_on_read(request: JobRequest, defaults: Defaults) -> bool:
    asked = request.delete_on_read
    return defaults.delete_on_read if asked is None else _flag("delete_on_read", asked)


def _trace(request: JobRequest, callers: str) -> str:
    if request.trace is None:
        return callers
    if request.trace and not is_traceparent(request.trace):
        raise InvalidRequest("trace: a W3C traceparent is required")
    return request.trace


def _bucket(request: JobRequest) -> Bucket | None:
    if request.bucket is not None:
        check_name("API key's id", request.bucket.key_id)
    return request.bucket


def _seconds(name: str, value: requests.Duration | None) -> float | None:
    return None if value is None else requests.seconds(name, value)


def _followed_s(request: JobRequest, delay_s: float) -> float | None:
    """From when on it can run, as its worker counts."""
    if request.follow_for is None:
        return None
    return max(0.0, requests.seconds("follow_for", request.follow_for) - delay_s)


def _streams(request: JobRequest, body: JsonObject) -> bool:
    stream = _flag("stream", request.stream) or bool(body.get("stream"))
    if stream and "input" in body:
        raise InvalidRequest("stream: embeddings are not streamed")
    return stream
