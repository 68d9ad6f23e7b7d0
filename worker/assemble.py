"""From a stream's chunks to the response that the same request would have had without streaming: pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from protocol.messages import Endpoint
from protocol.wire import JsonObject

_KEPT = ("id", "created", "model", "system_fingerprint", "service_tier")
# Texts that name something: a later piece repeats them, it does not continue them.
_REPLACED = frozenset({"index", "type", "role", "id", "finish_reason", "stop_reason"})
_PLAIN = frozenset({"index", "delta", "text"})


def assemble(endpoint: Endpoint, chunks: Sequence[JsonObject]) -> JsonObject:
    """The full OpenAI response object.

    Args:
        endpoint: which shape to build; an embeddings response is its only chunk.
        chunks: OpenAI chunk objects in order, at least one; several choices may alternate.
    """
    if endpoint == "/v1/embeddings":
        return chunks[-1]
    choices: dict[int, JsonObject] = {}
    for chunk in chunks:
        for piece in chunk.get("choices") or ():
            _merge(choices.setdefault(piece.get("index", 0), {}), piece)
    ordered = [_joined(choices[index]) for index in sorted(choices)]
    chat = endpoint == "/v1/chat/completions"
    head = {name: value for name in _KEPT if (value := _first(chunks, name)) is not None}
    return {
        **head,
        "object": "chat.completion" if chat else "text_completion",
        "choices": [_chat_choice(choice) if chat else _text_choice(choice) for choice in ordered],
        "usage": _first(reversed(chunks), "usage"),
    }


def merge_chunks(chunks: Iterable[JsonObject]) -> list[JsonObject]:
    """Fewer chunks that say the same: neighbours that only add text to one choice become one.

    Everything else stays as it is and where it is: roles, ends, log probabilities, tool calls, usage.
    """
    merged: list[JsonObject] = []
    texts: list[str] = []
    for chunk in chunks:
        text = _plain_text(chunk)
        if text is not None and texts and _continues(merged[-1], chunk):
            texts.append(text)
            continue
        _close(merged, texts)
        texts = [] if text is None else [text]
        merged.append(chunk)
    _close(merged, texts)
    return merged


def _close(merged: list[JsonObject], texts: list[str]) -> None:
    """Give the last chunk the texts that were gathered for it."""
    if len(texts) > 1:
        merged[-1] = _with_text(merged[-1], "".join(texts))


def _with_text(chunk: JsonObject, text: str) -> JsonObject:
    choice = chunk["choices"][0]
    said = {"delta": dict.fromkeys(choice["delta"], text)} if "delta" in choice else {"text": text}
    return {**chunk, "choices": [{**choice, **said}]}


def _plain_text(chunk: JsonObject) -> str | None:
    """The text of a chunk that holds nothing else, be it content or reasoning; None for every other chunk."""
    choices: list[JsonObject] = chunk.get("choices") or []
    if len(choices) != 1 or chunk.get("usage"):
        return None
    choice = choices[0]
    # No generator: each chunk is looked at.
    for name, value in choice.items():
        if value and name not in _PLAIN:
            return None
    said = choice.get("delta", choice)
    if said is choice:
        text = choice.get("text")
    elif said is None or len(said) != 1 or not _REPLACED.isdisjoint(said):
        return None
    else:
        (text,) = said.values()
    return text if isinstance(text, str) else None


def _continues(before: JsonObject, chunk: JsonObject) -> bool:
    """Whether two plain chunks speak for the same choice of the same answer, and in the same member."""
    one, other = before["choices"][0], chunk["choices"][0]
    same_choice = one.get("index", 0) == other.get("index", 0)
    return same_choice and _member(one) == _member(other) and before.get("id") == chunk.get("id")


def _member(choice: JsonObject) -> str | None:
    """The member of its delta in which a plain chunk has its text; None for one without a delta."""
    return next(iter(choice["delta"])) if "delta" in choice else None


def _first(chunks: Iterable[JsonObject], name: str) -> Any:  # noqa: ANN401 - a member of any JSON type
    return next((chunk[name] for chunk in chunks if chunk.get(name) is not None), None)


class _Pieces(list[str]):
    """A text that grows: joined once, or each piece would copy all before it."""


class _Calls(dict[int | None, JsonObject]):
    """Tool calls by their `index`: there may be as many as an event has room for."""


def _merge(into: JsonObject, piece: JsonObject) -> None:
    """Add a delta: texts and lists grow, objects merge, tool calls merge by their `index`."""
    for name, value in piece.items():
        before = into.get(name)
        if value is None:
            into.setdefault(name, None)
        elif isinstance(value, dict):
            into[name] = before if type(before) is dict else {}
            _merge(into[name], value)
        elif isinstance(value, list) and name == "tool_calls":
            into[name] = before if isinstance(before, _Calls) else _Calls()
            _merge_calls(into[name], value)
        elif isinstance(value, list):
            into[name] = before if type(before) is list else []
            into[name].extend(value)
        elif isinstance(value, str) and name not in _REPLACED:
            _grow(into, name, value)
        else:
            into[name] = value


def _grow(into: JsonObject, name: str, text: str) -> None:
    before = into.get(name)
    if isinstance(before, _Pieces):
        before.append(text)
    else:
        into[name] = _Pieces([before, text]) if isinstance(before, str) else text


def _merge_calls(calls: _Calls, pieces: list[JsonObject]) -> None:
    for piece in pieces:
        _merge(calls.setdefault(piece.get("index"), {}), piece)


def _joined(value: Any) -> Any:  # noqa: ANN401 - a member of any JSON type
    """What was merged, as plain JSON."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, _Calls):
        return [_joined(call) for call in value.values()]
    return {name: _joined(member) for name, member in value.items()} if isinstance(value, dict) else value


def _chat_choice(choice: JsonObject) -> JsonObject:
    delta = choice.pop("delta", None) or {}
    calls = [{name: value for name, value in call.items() if name != "index"} for call in delta.get("tool_calls") or ()]
    message = {name: value for name, value in delta.items() if value is not None and name != "tool_calls"}
    said_otherwise = calls or "function_call" in message or "refusal" in message
    content = message.pop("content", None) or (None if said_otherwise else "")
    message = {**message, "role": message.get("role") or "assistant", "content": content}
    if calls:
        message["tool_calls"] = calls
    return {**_ends(choice), "message": message}


def _text_choice(choice: JsonObject) -> JsonObject:
    return {**_ends(choice), "text": choice.get("text") or ""}


def _ends(choice: JsonObject) -> JsonObject:
    return {"index": 0, "logprobs": None, "finish_reason": None, **choice}
