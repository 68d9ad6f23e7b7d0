"""Answers that come as a whole."""

from collections.abc import Mapping

from starlette.responses import Response

from producer.gateway import failures
from producer.gateway.failures import Failure
from protocol.messages import Outcome
from protocol.wire import JsonObject, dumps

REQUEST_ID = "x-request-id"
Headers = Mapping[str, str]


def answered(body: JsonObject, status: int = 200, headers: Headers | None = None) -> Response:
    """A JSON object."""
    return Response(dumps(body), status, headers, "application/json")


def failed(failure: Failure, headers: Headers | None = None) -> Response:
    """An error, as OpenAI's clients read it."""
    return answered(failure.body, failure.status, {**(headers or {}), **failure.headers})


def ended(outcome: Outcome, headers: Headers | None = None) -> Response:
    """How a job ended: the engine's answer or its refusal, else what came in the place of one."""
    if failure := failures.failure_of_end(outcome):
        return failed(failure, headers)
    status = outcome.status_code or 200
    body = (outcome.body or {}) if status < 400 else failures.engine_body(outcome)
    return answered(body, status, headers)


def succeeded(outcome: Outcome) -> bool:
    """Whether it has an answer that is no refusal."""
    return failures.failure_of_end(outcome) is None and (outcome.status_code or 200) < 400
