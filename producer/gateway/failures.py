"""What went wrong, as OpenAI's clients read it: one table from our codes to a status and a type."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import ClassVar

from producer.gateway.ratelimits import left_of
from protocol.errors import FleetError, QuotaExceeded, RateLimited
from protocol.handle import Handle
from protocol.messages import Outcome
from protocol.states import State
from protocol.wire import JsonObject

CALLER = "invalid_request_error"
SERVER = "server_error"


class Unauthenticated(FleetError):
    """No key, or one that is unknown or revoked."""

    code = "invalid_api_key"


class Forbidden(FleetError):
    """The key may not do this."""

    code = "permission_denied"


class UnsupportedMedia(FleetError):
    """The body is in a format or an encoding that is not read here."""

    code = "unsupported_media_type"


class SlowBody(FleetError):
    """The request's body did not come in time."""

    code = "request_body_timeout"


class FilesFull(FleetError):
    """The tenant's files take as much of the store as they may."""

    code = "storage_limit_reached"


class ClosingDown(FleetError):
    """This gateway is about to end; others go on."""

    code = "gateway_closing"


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a code is told."""

    status: int
    type: str
    code: str = ""
    """OpenAI's name for it, where clients know one; else ours."""
    retry: bool | None = None
    """`x-should-retry`; None leaves it to what the client makes of the status."""


_KINDS: dict[str, _Kind] = {
    "invalid_request": _Kind(400, CALLER),
    "invalid_json": _Kind(400, CALLER),
    "invalid_id": _Kind(400, CALLER),
    "too_large": _Kind(413, CALLER),
    "storage_limit_reached": _Kind(413, CALLER),
    "unsupported_media_type": _Kind(415, CALLER),
    "request_body_timeout": _Kind(408, CALLER),
    "invalid_api_key": _Kind(401, CALLER),
    "permission_denied": _Kind(403, "permission_error"),
    "unknown_model": _Kind(404, CALLER, "model_not_found"),
    "unknown_job": _Kind(404, CALLER),
    "unknown_file": _Kind(404, CALLER),
    "unknown_batch": _Kind(404, CALLER),
    "conflicting_id": _Kind(409, CALLER, retry=False),
    "batch_active": _Kind(409, CALLER, retry=False),
    "quota_exceeded": _Kind(429, "rate_limit_error", "rate_limit_exceeded"),
    "rate_limited": _Kind(429, "rate_limit_error", "rate_limit_exceeded"),
    "queue_full": _Kind(503, SERVER),
    "store_full": _Kind(503, SERVER),
    "store_unavailable": _Kind(503, SERVER),
    "library_missing": _Kind(503, SERVER),
    "not_allowed": _Kind(503, SERVER),
    "not_durable": _Kind(503, SERVER),
    "output_failed": _Kind(503, SERVER),
    # This gateway has no store for files.
    "setup_error": _Kind(501, SERVER, retry=False),
    "gateway_closing": _Kind(503, SERVER),
    # A client that tried again would start a second job.
    "wait_timeout": _Kind(504, SERVER, retry=False),
    # How jobs end.
    "unreachable": _Kind(503, SERVER),
    "engine_error": _Kind(502, SERVER),
    "request_timeout": _Kind(504, SERVER, retry=False),
    "expired": _Kind(504, SERVER, retry=False),
    "cancelled": _Kind(409, CALLER, retry=False),
    "unfollowed": _Kind(409, CALLER, retry=False),
}
_OTHER = _Kind(500, SERVER)
STATUSES = tuple(sorted({405, 431, _OTHER.status} | {kind.status for kind in _KINDS.values()}))
"""Every status that is no answer."""
# A refusal begins with the field that it is about.
_FIELD = re.compile(r"([a-z_]+(?:\.[a-z0-9_]+)*): ")
RETRY_AFTER = "retry-after"
AGAIN_S = 1.0
"""When to try again where nobody knows better."""
MOST_AGAIN_S = 60.0
"""OpenAI's clients follow no longer one."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One answer that is none."""

    status: int
    type: str
    code: str
    message: str
    param: str | None = None
    retry: bool | None = None
    retry_after_s: float | None = None
    more: Mapping[str, str] = field(default_factory=dict)
    """Headers that belong to it."""
    BUSY: ClassVar[tuple[int, ...]] = (429, 503)

    @property
    def body(self) -> JsonObject:
        """OpenAI's error object."""
        told = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": told}

    @property
    def headers(self) -> dict[str, str]:
        """Whether and when a client should try again."""
        after_s = AGAIN_S if self.retry_after_s is None and self.status in self.BUSY else self.retry_after_s
        told = dict(self.more)
        if after_s is not None:
            told |= {RETRY_AFTER: str(ceil(after_s)), "retry-after-ms": str(ceil(after_s * 1000))}
        return told if self.retry is None else {**told, "x-should-retry": str(self.retry).lower()}


def failure_of(error: FleetError) -> Failure:
    """What an error of ours is told as."""
    retry_after_s = error.retry_after_s if isinstance(error, QuotaExceeded) else None
    failure = _failure(error.code, str(error), retry_after_s)
    if isinstance(error, RateLimited):
        return replace(failure, type=error.kind, more=left_of(error.allowance))
    return failure


def failure_of_end(outcome: Outcome) -> Failure | None:
    """What a job without an answer is told as; None for one that has an answer, the engine's 4xx included."""
    if outcome.status_code is not None:
        return None
    if outcome.error:
        wait_s = min(outcome.error.wait_ms / 1000, MOST_AGAIN_S)
        return _failure(outcome.error.code, outcome.error.message, wait_s or None)
    return None if outcome.state is State.COMPLETED else _failure(outcome.state, f"the job is {outcome.state}")


def engine_body(outcome: Outcome) -> JsonObject:
    """What the engine refused the request with, in OpenAI's shape."""
    body = outcome.body or {}
    if isinstance(body.get("error"), dict):
        return body
    message = body.get("message")
    told = message if isinstance(message, str) else "the engine refused the request"
    return Failure(outcome.status_code or 400, CALLER, "engine_refused", told).body


def other_status(status: int, message: str) -> Failure:
    """What the framework refuses: unknown paths and methods."""
    return Failure(status, CALLER if status < 500 else SERVER, f"http_{status}", message)


def restarted(handle: Handle) -> Failure:
    """Text that was sent counts no more, which OpenAI's protocol can't say."""
    return _failure("restarted", f"the job began anew; read it from its beginning: GET {path_of(handle)}/stream")


def truncated(handle: Handle) -> Failure:
    """Tokens that were not sent are gone; the whole answer is kept apart from them."""
    return _failure("truncated", f"tokens are missing here; the whole answer: GET {path_of(handle)}")


def closing_down() -> ClosingDown:
    """What a client is told that was promised nothing yet."""
    return ClosingDown("this gateway closes", "Try again: another one takes the request.")


def path_of(handle: Handle) -> str:
    """Where a job can be asked for."""
    return f"/v1/requests/{handle}"


def _failure(code: str, message: str, retry_after_s: float | None = None) -> Failure:
    kind = _KINDS.get(code, _OTHER)
    field = _FIELD.match(message) if kind.type == CALLER else None
    param = field[1] if field else None
    return Failure(kind.status, kind.type, kind.code or code, message, param, kind.retry, retry_after_s)
