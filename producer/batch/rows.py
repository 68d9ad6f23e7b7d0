"""Output lines in OpenAI's shape: built, and read again. Pure."""

from dataclasses import dataclass

from protocol import wire
from protocol.errors import InvalidRequest
from protocol.messages import Outcome
from protocol.states import State
from protocol.wire import JsonObject

# OpenAI's words for rows that never got an answer.
_CODES = {"expired": "batch_expired", "cancelled": "batch_cancelled"}
_PREFIX = "batch_req_"


def row_id(batch_id: str, number: int, generation: int = 0) -> str:
    """The id of a row's job: the same after a crash, another once the row is run anew."""
    return f"{batch_id}-{number}-{generation}" if generation else f"{batch_id}-{number}"


def row_of(batch_id: str, own_id: str) -> tuple[int, int] | None:
    """Line and generation of a row by its job's id; None for what is no row of the batch."""
    head, _, rest = own_id.partition(f"{batch_id}-")
    number, _, generation = rest.partition("-")
    if head or not _is_count(number) or not _is_count(generation or "0"):
        return None
    place = int(number), int(generation or 0)
    return place if row_id(batch_id, *place) == own_id else None


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def answered(own_id: str, outcome: Outcome) -> bytes:
    """What a row's line says of its job's end: the engine's response, be it a refusal, or why there is none."""
    status_code = outcome.status_code or (200 if outcome.state is State.COMPLETED else None)
    if outcome.body is None or status_code is None:
        code = outcome.error.code if outcome.error else str(outcome.state)
        message = outcome.error.message if outcome.error else "the job ended without a response"
        return refused(_CODES.get(code, code), message)
    response = wire.dumps({"status_code": status_code, "request_id": own_id, "body": outcome.body})
    return b'"response":' + response + b',"error":null'


def refused(code: str, message: str) -> bytes:
    """What the line of a row says that never got an answer."""
    return b'"response":null,"error":' + wire.dumps({"code": code, "message": message})


def line(own_id: str, custom_id: str | None, content: bytes) -> bytes:
    """The whole line, of what `answered` or `refused` made."""
    head = b'{"id":"' + _PREFIX.encode() + own_id.encode() + b'","custom_id":'
    return head + wire.dumps(custom_id) + b"," + content + b"}\n"


def succeeded(outcome: Outcome) -> bool:
    """Whether a row counts as done well: a response that is no refusal."""
    return outcome.state is State.COMPLETED and outcome.body is not None and not refused_by_engine(outcome)


def refused_by_engine(outcome: Outcome) -> bool:
    """Whether the engine takes no such request: it would refuse it again."""
    return outcome.body is not None and outcome.status_code is not None and outcome.status_code >= 400


@dataclass(frozen=True, slots=True)
class ReadLine:
    """One of our own output lines."""

    own_id: str
    content: bytes
    failed: bool
    tokens_in: int
    tokens_out: int


def read(data: bytes) -> ReadLine | None:
    """Read a line again; None for what we have not written whole."""
    try:
        found = wire.loads(data)
        response, error, own_id = found["response"], found["error"], found["id"]
        status_code = response["status_code"] if response else 0
        failed = response is None or status_code >= 400
        usage = response["body"].get("usage") or {} if response else {}
        tokens = [int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")]
    except (InvalidRequest, KeyError, TypeError, AttributeError, ValueError):
        return None
    if not isinstance(own_id, str) or not own_id.startswith(_PREFIX):
        return None
    content: JsonObject = {"response": response, "error": error}
    return ReadLine(own_id.removeprefix(_PREFIX), wire.dumps(content)[1:-1], failed, *tokens)


def id_of(data: bytes) -> str | None:
    """The row's id of one of our own lines, without a look at the rest; None where it is none."""
    head = b'{"id":"' + _PREFIX.encode()
    end = data.find(b'"', len(head))
    return data[len(head) : end].decode("ascii", "replace") if data.startswith(head) and end > 0 else None
