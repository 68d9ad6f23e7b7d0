"""Checks request bodies before anything is stored. A refusal names the field and never repeats its value."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from producer.constraints import check_constraints, check_meaning
from producer.prompts import PROMPT_SCHEMA, check_prompt
from producer.words import words_of
from protocol import wire
from protocol.errors import InvalidJson, InvalidRequest, TooLarge
from protocol.media import check_parts
from protocol.messages import Endpoint
from protocol.wire import JsonObject

MAX_MESSAGES = 1_000
MAX_METADATA_BYTES = 16 * 1024
INT64 = 2**63
SEED_RULE = "it must be an integer from -2^63 to 2^63 - 1"

Name = Annotated[str, StringConstraints(min_length=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]


class _Envelope(BaseModel):
    """Only what every engine agrees on is checked; other members go to the engine as they are."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: Name
    stream: bool | None = None
    metadata: dict[str, Any] | None = None


class _Sampling(_Envelope):
    max_tokens: Positive | None = None
    temperature: Annotated[Finite, Field(ge=0)] | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=16)] | None = None
    best_of: Annotated[int, Field(ge=1, le=20)] | None = None
    seed: Annotated[int, Field(ge=-INT64, lt=INT64)] | None = None
    presence_penalty: Finite | None = None
    frequency_penalty: Finite | None = None
    stop: str | Annotated[list[str], Field(max_length=64)] | None = None
    logit_bias: Annotated[dict[str, Finite], Field(max_length=1_024)] | None = None


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    type: Name
    text: str | None = None


class _ChatMessage(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[_Part], Field(min_length=1)] | None = None


class _Chat(_Sampling):
    messages: Annotated[list[_ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Positive | None = None


_SHAPES: dict[Endpoint, TypeAdapter[Any]] = {
    "/v1/chat/completions": TypeAdapter(_Chat),
    "/v1/completions": TypeAdapter(_Sampling),
    "/v1/embeddings": TypeAdapter(_Envelope),
}
_PROMPT: dict[Endpoint, str] = {
    "/v1/chat/completions": "messages",
    "/v1/completions": "prompt",
    "/v1/embeddings": "input",
}
_MODELS = (_Chat, _ChatMessage, _Part)
_FIELDS = frozenset(name for model in _MODELS for name in model.model_fields)


@dataclass(frozen=True, slots=True)
class CheckedBody:
    """A body that an engine may see: `encoded` as the user ordered it, `digest` the same for equal bodies."""

    encoded: bytes
    digest: str


def schema_of(endpoint: Endpoint, ref_template: str) -> tuple[JsonObject, JsonObject]:
    """What `check` asks of a body, as a JSON schema, and the schemas that it refers to by their names."""
    schema = _SHAPES[endpoint].json_schema(ref_template=ref_template)
    wanted = _PROMPT[endpoint]
    named = schema.pop("$defs", {})
    if wanted != "messages":
        schema["properties"][wanted] = PROMPT_SCHEMA
        schema["required"] = [*schema["required"], wanted]
    for name in _PROMPT.values():
        if name != wanted:
            schema["properties"][name] = {"type": "null"}
    return schema, named


def check(endpoint: Endpoint, body: JsonObject, max_bytes: int) -> CheckedBody:
    """Check a body and encode it, as `encoded` does, and what its constraints mean; make its digest."""
    data = encoded(endpoint, body, max_bytes)
    check_meaning(body)
    return CheckedBody(data, digest(endpoint, body))


def encoded(endpoint: Endpoint, body: JsonObject, max_bytes: int) -> bytes:
    """Check a body and encode it.

    Raises:
        TooLarge: it is over `max_bytes` bytes, has over 1,000 messages, or metadata of over 16 KiB.
        InvalidJson: it can't be written as JSON, or is nested over 64 deep.
        InvalidRequest: it breaks another rule; the message begins with the field.
    """
    data = _encode(body)
    if len(data) > max_bytes:
        raise TooLarge(f"the body has {len(data)} bytes; the limit is {max_bytes}")
    if wire.nested_over(wire.MAX_NESTING, body, data):
        raise InvalidJson(f"the body is nested over {wire.MAX_NESTING} deep")
    _check_shape(endpoint, body)
    _check_prompt(endpoint, body)
    check_constraints(body)
    return data


def _encode(body: JsonObject) -> bytes:
    try:
        return wire.dumps(body)
    except TypeError as error:
        raise InvalidJson(f"the body can't be written as JSON: {error}") from None


def _check_shape(endpoint: Endpoint, body: JsonObject) -> None:
    messages = body.get("messages")
    if isinstance(messages, list) and len(messages) > MAX_MESSAGES:
        raise TooLarge(f"messages: {len(messages)} of them; the limit is {MAX_MESSAGES}")
    metadata = len(wire.dumps(body.get("metadata")))
    if metadata > MAX_METADATA_BYTES:
        raise TooLarge(f"metadata: it has {metadata} bytes; the limit is {MAX_METADATA_BYTES}")
    try:
        _SHAPES[endpoint].validate_python(body)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False, include_context=False)
        # The deepest one: of a union's alternatives it is the one that was meant.
        problem = max(problems, key=lambda found: len(_path(found["loc"])))
        kind = InvalidJson if problem["type"] == "finite_number" else InvalidRequest
        field = ".".join(_path(problem["loc"])) or "body"
        # A wider one was read as a float: that it is no integer would not help who wrote one.
        raise kind(f"{field}: {SEED_RULE if field == 'seed' else words_of(problem)}") from None


def _path(location: tuple[int | str, ...]) -> list[str]:
    """Fields and indices; a union's tags and the user's own keys are none."""
    return [str(part) for part in location if isinstance(part, int) or part in _FIELDS]


def _check_prompt(endpoint: Endpoint, body: JsonObject) -> None:
    wanted = _PROMPT[endpoint]
    for name in _PROMPT.values():
        if name != wanted and body.get(name) is not None:
            raise InvalidRequest(f"{name}: {endpoint} takes {wanted} alone")
    if wanted == "messages":
        _check_contents(body["messages"])
    else:
        check_prompt(wanted, body.get(wanted))
    if wanted == "input" and body.get("stream"):
        raise InvalidRequest("stream: embeddings are not streamed")


def _check_contents(messages: list[Mapping[str, Any]]) -> None:
    """Only an assistant's turn may be without content: it may call tools instead."""
    for index, message in enumerate(messages):
        if message.get("content") is None and message["role"] != "assistant":
            raise InvalidRequest(f"messages.{index}.content: Field required")
        if isinstance(content := message.get("content"), list | tuple):
            check_parts(f"messages.{index}.content", content)


def digest(endpoint: Endpoint, body: JsonObject) -> str:
    """The same for equal checked bodies, however they are written.

    Raises:
        InvalidJson: the body can't be written as JSON.
    """
    made = hashlib.sha256(endpoint.encode() + b"\0" + body["model"].encode() + b"\0")
    made.update(wire.canonical(body))
    return made.hexdigest()
