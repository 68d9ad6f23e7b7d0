"""Builds output lines, in OpenAI's shape. Pure."""

from protocol import wire
from protocol.messages import Outcome
from protocol.states import State
from protocol.wire import JsonObject

# OpenAI's words for rows that never got an answer.
_CODES = {"expired": "batch_expired", "cancelled": "batch_cancelled"}


def answered(row_id: str, custom_id: str, outcome: Outcome) -> bytes:
    """The line of a row whose job ended: with the engine's response, be it a refusal, or with why there is none."""
    status_code = outcome.status_code or (200 if outcome.state is State.COMPLETED else None)
    if outcome.body is None or status_code is None:
        code = outcome.error.code if outcome.error else str(outcome.state)
        message = outcome.error.message if outcome.error else "the job ended without a response"
        return refused(row_id, custom_id, _CODES.get(code, code), message)
    response: JsonObject = {"status_code": status_code, "request_id": row_id, "body": outcome.body}
    return _line(row_id, custom_id, response, None)


def refused(row_id: str, custom_id: str | None, code: str, message: str) -> bytes:
    """The line of a row that never got an answer."""
    return _line(row_id, custom_id, None, {"code": code, "message": message})


def _line(row_id: str, custom_id: str | None, response: JsonObject | None, error: JsonObject | None) -> bytes:
    line = {"id": f"batch_req_{row_id}", "custom_id": custom_id, "response": response, "error": error}
    return wire.dumps(line) + b"\n"


def succeeded(outcome: Outcome) -> bool:
    """Whether a row counts as done well: a response that is no refusal."""
    refusal = outcome.status_code is not None and outcome.status_code >= 400
    return outcome.state is State.COMPLETED and outcome.body is not None and not refusal
