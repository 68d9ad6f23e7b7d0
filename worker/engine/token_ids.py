"""Tokens by their numbers, as vLLM brings them in a stream's chunks (`return_token_ids`): pure."""

from protocol.wire import JsonObject
from worker.engine.openai_rules import speaks

_CHOICE, _PROMPT = "token_ids", "prompt_token_ids"


def ids_of(value: object) -> list[int]:
    """A list of token ids; none for anything else."""
    fits = isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
    return list(value) if fits and isinstance(value, list) else []


def is_mute(chunk: JsonObject) -> bool:
    """Whether a chunk says nothing at all: its tokens have no text yet."""
    choices = chunk.get("choices") or ()
    matters = any(choice.get("finish_reason") or (choice.get("delta") or {}).get("role") for choice in choices)
    return not (matters or speaks(chunk) or chunk.get("usage"))


def without_ids(chunk: JsonObject) -> tuple[JsonObject, list[int]]:
    """The chunk as its user asked for it, and the tokens of its choices."""
    choices = chunk.get("choices") or ()
    # No generator: each chunk is looked at.
    for choice in choices:
        if _CHOICE in choice:
            break
    else:
        if _PROMPT not in chunk:
            return chunk, []
    ids = [number for choice in choices for number in ids_of(choice.get(_CHOICE))]
    plain = [{name: value for name, value in choice.items() if name not in (_CHOICE, _PROMPT)} for choice in choices]
    return {**{name: value for name, value in chunk.items() if name != _PROMPT}, "choices": plain}, ids
