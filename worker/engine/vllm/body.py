"""A request as vLLM gets it: the user's body, and the few members that are ours. Pure."""

from collections.abc import Iterator
from hashlib import sha256

from protocol.states import Priority
from protocol.wire import JsonObject, dumps
from worker.continuation import member_that_counts
from worker.engine.base import EngineRequest

_PRIORITY = {Priority.HIGH: 0, Priority.MEDIUM: 1, Priority.LOW: 2}
"""vLLM takes the lowest first."""
_SALT_CHARS = 32


def engine_body(request: EngineRequest, *, by_priority: bool, stream_interval: int = 0) -> JsonObject:
    """The body to send.

    Ours replace the user's: `priority`, by which nobody is to pass others, and `cache_salt`, which keeps tenants
    from learning by timing what others have asked. `session_id` comes back with the KV events of this request;
    embeddings know none. A request whose text another attempt could go on with asks for its tokens.

    Args:
        request: the attempt.
        by_priority: whether the engine takes priorities; otherwise it refuses a request that has any but 0.
        stream_interval: tokens of one chunk where the user names no other number; 0 leaves it to the server.
    """
    ours: JsonObject = {"cache_salt": _salt(request.tenant), "priority": 0}
    if by_priority:
        ours["priority"] = _PRIORITY[request.priority]
    if request.endpoint == "/v1/embeddings":
        return {**request.body, **ours}
    ours["session_id"] = request.request_id
    if not member_that_counts(request.body):
        ours["return_token_ids"] = True
    gathered = {"stream_interval": stream_interval} if stream_interval else {}
    return {**gathered, **request.body, **ours}


def prompt_chars(body: JsonObject) -> int:
    """Characters of the first prompt's texts, as the producer counts them for `EngineRequest.prefix`."""
    messages, prompt = body.get("messages"), body.get("prompt")
    if isinstance(messages, list):
        tools = len(dumps(body["tools"]).decode()) if body.get("tools") else 0
        return tools + sum(len(text) for message in messages for text in _texts(message))
    first = prompt[0] if isinstance(prompt, list) and prompt else prompt
    return len(first) if isinstance(first, str) else 0


def _salt(tenant: str) -> str:
    return sha256(f"tokenfleet:{tenant}".encode()).hexdigest()[:_SALT_CHARS]


def _texts(message: JsonObject) -> Iterator[str]:
    yield message["role"]
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif content:
        yield from (part["text"] for part in content if part.get("text"))
