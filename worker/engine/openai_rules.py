"""How to read and write an OpenAI-compatible server's messages: pure functions."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite

from protocol.errors import InvalidRequest
from protocol.messages import MOST, Endpoint
from protocol.wire import MAX_NESTING, JsonObject, loads, nested_over
from worker.engine.answers import error_body, usage
from worker.engine.base import Capacity, EngineBusy, EngineError, EngineFault, EngineRefused
from worker.engine.options import EngineOptions

DEFAULT_SLOTS = 16
DEFAULT_RETRY_S, LONGEST_RETRY_S = 1.0, 300.0
LONGEST_ID = 10
"""Digits of a token's id at most."""
_CONTINUING = frozenset({"vllm", "sglang", "llamacpp"})
"""Servers that go on with a chat's last message, as they name themselves; others may answer it, and not say so."""
# A request that came too late or timed out is not at fault; one that the server never implements is.
_TRY_AGAIN, _NEVER = frozenset({408, 425}), frozenset({501, 505})


def upstream_body(endpoint: Endpoint, body: JsonObject) -> JsonObject:
    """The body to send: generation always streams and ends with its usage, all else is the user's."""
    if endpoint == "/v1/embeddings":
        return body
    options = body.get("stream_options")
    kept = options if isinstance(options, dict) else {}
    return {**body, "stream": True, "stream_options": {**kept, "include_usage": True}}


def error_of_status(status_code: int, content: bytes, wait_s: float = DEFAULT_RETRY_S) -> EngineError:
    """What an answer that is not 200 means for the attempt; `wait_s` of `retry_after_s`."""
    if status_code in (429, 503):
        return EngineBusy(wait_s)
    if (400 <= status_code < 500 and status_code not in _TRY_AGAIN) or status_code in _NEVER:
        return EngineRefused(status_code, _object_or_none(content) or _made(status_code))
    return EngineFault(f"the engine answered {status_code}")


def error_of_event(chunk: JsonObject) -> EngineError | None:
    """What an `{"error": …}` event within a stream means; None for any other event."""
    error = chunk.get("error")
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 600 and code not in _TRY_AGAIN:
        failure = error_of_status(code, b"")
        return EngineRefused(code, {"error": error}) if isinstance(failure, EngineRefused) else failure
    return EngineFault("the engine's stream ended with an error")


def retry_after_s(header: str, now: datetime) -> float:
    """Seconds to wait by a Retry-After header, which holds seconds or an HTTP date."""
    try:
        wait_s = float(header)
    except ValueError:
        try:
            until = parsedate_to_datetime(header)
        except (ValueError, OverflowError):
            return DEFAULT_RETRY_S
        wait_s = (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds()
    return min(max(wait_s, 0.0), LONGEST_RETRY_S) if isfinite(wait_s) else DEFAULT_RETRY_S


def read_object(content: bytes) -> JsonObject:
    """A JSON object that the engine sent.

    Raises:
        EngineFault: it is none.
    """
    value = _object_or_none(content)
    if value is None:
        raise EngineFault(f"the engine's answer is {'no JSON object' if _is_text(content) else 'not UTF-8'}")
    return value


def read_chunk(data: bytes) -> JsonObject:
    """A chunk of a stream.

    Raises:
        EngineError: it is an error, or no chunk.
    """
    chunk = read_object(data)
    if error := error_of_event(chunk):
        raise error
    choices = chunk.get("choices")
    if not isinstance(choices, list) or not all(map(_is_choice, choices)):
        raise EngineFault("the engine's stream holds an event that is no chunk")
    _check_usage(chunk)
    return chunk


def read_embeddings(content: bytes) -> JsonObject:
    """The answer to a request for embeddings.

    Raises:
        EngineFault: it is none.
    """
    answer = read_object(content)
    if not isinstance(answer.get("data"), list):
        raise EngineFault("the engine's answer holds no embeddings")
    _check_usage(answer)
    return answer


def speaks(chunk: JsonObject) -> bool:
    """Whether a chunk brings anything generated, beside the role and the reason of the end."""
    for choice in chunk.get("choices") or ():
        if choice.get("text"):
            return True
        # No generator: it is asked of each chunk, three times.
        for name, value in (choice.get("delta") or {}).items():
            if value and name != "role":
                return True
    return False


def usage_chunk(last: JsonObject, known: JsonObject | None, prompt_tokens: int, generated: int) -> JsonObject:
    """A closing chunk for a server that sent no usage at the end: what it said before, else our counts."""
    kept: JsonObject = {name: last[name] for name in ("id", "object", "created", "model") if name in last}
    return {**kept, "choices": [], "usage": known or usage(prompt_tokens, generated)}


def capacity_of(options: EngineOptions, models: JsonObject, props: JsonObject) -> Capacity:
    """What the engine holds: the settings first, then what vLLM (`max_model_len`) or llama.cpp tell.

    Args:
        options: the worker's settings.
        models: the answer of `/v1/models`, or empty.
        props: the answer of llama.cpp's `/props`, or empty.
    """
    listed = models.get("data")
    records = [record for record in (listed if isinstance(listed, list) else ()) if isinstance(record, dict)]
    chosen = next((record for record in records if record.get("id") == options.model), None)
    record = chosen or (records[0] if records else {})
    per_slot = _count(_member(props, "default_generation_settings").get("n_ctx"))
    slots = options.slots or _count(props.get("total_slots")) or DEFAULT_SLOTS
    told = _count(record.get("max_model_len")) or per_slot or _count(_member(record, "meta").get("n_ctx"))
    return Capacity(
        slots=slots,
        context_tokens=options.context_tokens or told,
        kv_tokens=options.kv_tokens or per_slot * _count(props.get("total_slots")),
        continues_chats=record.get("owned_by") in _CONTINUING,
    )


def vocabulary_of(models: JsonObject) -> int:
    """Token ids are below it, where llama.cpp's answer of `/v1/models` tells; 0 where it is unknown."""
    listed = models.get("data")
    records = [record for record in (listed if isinstance(listed, list) else ()) if isinstance(record, dict)]
    return max((_count(_member(record, "meta").get("n_vocab")) for record in records), default=0)


def check_biases(body: JsonObject, vocabulary: int) -> None:
    """Refuse biases of tokens that there are not: llama.cpp leaves them out without a word; 0 checks nothing.

    Raises:
        EngineRefused: with status 400.
    """
    biases = body.get("logit_bias")
    names = [str(name) for name in biases] if vocabulary and isinstance(biases, dict) else []
    ids = [name for name in names if name.isascii() and name.isdecimal()]
    if any(len(name) > LONGEST_ID or int(name) >= vocabulary for name in ids):
        message = f"logit_bias: token ids must be integers from 0 to {vocabulary - 1}"
        raise EngineRefused(400, error_body(message, "invalid_token_id"))


def _is_choice(value: object) -> bool:
    """Whether all that is read of a choice later is of its type."""
    if not isinstance(value, dict) or not _is_count(value.get("index", 0)):
        return False
    delta, text = value.get("delta"), value.get("text")
    if not isinstance(delta, dict | None) or not isinstance(text, str | None):
        return False
    calls = delta.get("tool_calls") if delta else None
    return calls is None or (isinstance(calls, list) and all(_is_call(call) for call in calls))


def _is_call(value: object) -> bool:
    """Whether it may be a piece of a tool call; some servers send no index."""
    return isinstance(value, dict) and (value.get("index") is None or _is_count(value["index"]))


def _check_usage(answer: JsonObject) -> None:
    """Figures below zero, or of another type, would be added up for good."""
    figures = answer.get("usage")
    if figures is None:
        return
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    if not isinstance(figures, dict) or not all(_is_count(figures.get(name) or 0) for name in names):
        raise EngineFault("the engine's usage figures make no sense")


def _is_count(value: object) -> bool:
    # `type` and not isinstance: true is an int to Python.
    return type(value) is int and 0 <= value <= MOST


def _member(value: JsonObject, name: str) -> JsonObject:
    member = value.get(name)
    return member if isinstance(member, dict) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _object_or_none(content: bytes) -> JsonObject | None:
    try:
        value = loads(content)
    except InvalidRequest:
        return None
    # What is read can be deeper than what can be written.
    return value if isinstance(value, dict) and not nested_over(MAX_NESTING, value, content) else None


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _made(status_code: int) -> JsonObject:
    return error_body(f"the engine refused the request with status {status_code}", "engine_refused", status_code)
