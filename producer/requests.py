"""What a user asks for: one job, before it is checked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from producer.words import MESSAGE
from protocol.errors import InvalidRequest
from protocol.limits import Bucket
from protocol.messages import Endpoint
from protocol.states import Priority
from protocol.wire import JsonObject

Duration = float | timedelta
"""Seconds, or a timedelta."""
Deadline = float | timedelta | datetime
"""Seconds from now, or a moment with a time zone."""
Prompt = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]
LONGEST_S = 366 * 86_400.0

_BY_MEMBER: dict[str, Endpoint] = {
    "messages": "/v1/chat/completions",
    "prompt": "/v1/completions",
    "input": "/v1/embeddings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job to submit. What it asks of the engine stands in the OpenAI body that its fields make up."""

    model: str = ""
    """The model or adapter; empty: the body names it."""
    messages: Sequence[JsonObject] | None = None
    """A chat. This, `prompt` or `input` shows which endpoint is meant."""
    prompt: Prompt | None = None
    """A completion."""
    input: Prompt | None = None
    """Embeddings."""
    body: Mapping[str, Any] | None = None
    """An OpenAI request body; the fields above and `params` are added to it."""
    endpoint: Endpoint | None = None
    """Needed only where a body does not show it."""
    priority: Priority | str = "high"
    """`high` (online), `medium` (batch) or `low` (background)."""
    deadline: Deadline | None = None
    """Later, the job expires. Seconds from now, a timedelta, or a moment with a time zone."""
    tenant: str = ""
    """Whose job it is; the fleet's own tenant by default."""
    stream: bool = False
    """Whether tokens can be followed as they come."""
    best_effort: bool = False
    """Never refused because its target can't be met: it waits as long as it must."""
    delay: Duration = 0
    """Time before the job may begin."""
    time_limit: Duration | None = None
    """How long one attempt may run."""
    cancel_unfollowed: Duration | None = None
    """It is cancelled once nobody has followed it, or waited for its result, for so long while it runs; None: never."""
    follow_for: Duration | None = None
    """`cancel_unfollowed` counts only so long after the submission; None: to its end. For gateways."""
    keep: Duration | None = None
    """How long its result is kept; the settings' time by default."""
    delete_on_read: bool | None = None
    """Forgotten as soon as its result has been read once; the setting by default."""
    id: str = ""
    """An id of yours: submitted again with the same body, it finds the same job. Random by default."""
    reply_to: str = ""
    """Name of a stream that tells of the job's end; batches use it."""
    failure_stays: bool = False
    """If the job of this id and body has failed, find it so; by default it runs anew. Batches that go on use it."""
    bucket: Bucket | None = None
    """The API key that it counts for, and that key's limits: for gateways."""
    trace: str | None = None
    """A W3C `traceparent` that its spans stand under: for gateways. By default the caller's current span, if any."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """More members of the body, such as `max_tokens`; a value of None is left out."""


def check_kind(request: object) -> None:
    """Take nothing for a request that is none: a dictionary has other members than our fields.

    Raises:
        InvalidRequest: it is no `JobRequest`.
    """
    if not isinstance(request, JobRequest):
        hint = "A dictionary of its fields is JobRequest(**fields), an OpenAI body is JobRequest(body=body)."
        raise InvalidRequest(f"a JobRequest is required, not a {type(request).__name__}", hint)


def model_of(request: object) -> str:
    """The model that the request or its body names; empty when neither does, or it is no request."""
    if not isinstance(request, JobRequest):
        return ""
    body = request.body if isinstance(request.body, Mapping) else {}
    model = request.model or body.get("model")
    return model if isinstance(model, str) else ""


def body_of(request: JobRequest) -> JsonObject:
    """The request body that the fields describe.

    Raises:
        InvalidRequest: `body` is no mapping, or `messages` no list.
    """
    if not isinstance(request.body, Mapping | None):
        raise InvalidRequest("body: a mapping is required")
    chat: object = request.messages
    if isinstance(chat, str | Mapping) or not isinstance(chat, Iterable | None):
        raise InvalidRequest(f"messages: a list is required, such as [{MESSAGE}]")
    body = dict(request.body or {})
    messages = None if request.messages is None else list(request.messages)
    given = {"model": request.model or None, "messages": messages, "prompt": request.prompt, "input": request.input}
    given |= request.params
    body |= {name: value for name, value in given.items() if value is not None}
    return body


def endpoint_of(request: JobRequest, body: JsonObject) -> Endpoint:
    """The endpoint that is named, or that the body's members show.

    Raises:
        InvalidRequest: neither, or no endpoint of this fleet.
    """
    if request.endpoint is not None:
        if request.endpoint not in _BY_MEMBER.values():
            raise InvalidRequest("endpoint: no such endpoint", f"Use one of {', '.join(_BY_MEMBER.values())}.")
        return request.endpoint
    for member, endpoint in _BY_MEMBER.items():
        if member in body:
            return endpoint
    raise InvalidRequest("messages: one of messages, prompt and input is required")


def priority_of(request: JobRequest) -> Priority:
    """The priority as a member.

    Raises:
        InvalidRequest: there is no such priority.
    """
    try:
        return Priority(request.priority)
    except ValueError:
        raise InvalidRequest("priority: no such priority", f"Use one of {', '.join(Priority)}.") from None


def seconds(name: str, value: Duration, least: float = 0.0) -> float:
    """A duration in seconds.

    Raises:
        InvalidRequest: it is no number, below `least`, or over a year.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{name}: a number of seconds or a timedelta is required")
    if not least <= value <= LONGEST_S:  # NaN is in no range
        raise InvalidRequest(f"{name}: it must be between {least:g} and {LONGEST_S:.0f} seconds")
    return float(value)


def deadline_s(value: Deadline, now: datetime) -> float:
    """Seconds from `now` to the deadline.

    Raises:
        InvalidRequest: it is past, over a year away, or a moment without a time zone.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidRequest("deadline: the moment has no time zone", "Use datetime.now(UTC) + timedelta(…).")
        value = value - now
    return seconds("deadline", value, least=0.001)
