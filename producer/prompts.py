"""Prompts that are no messages: a text, several texts, token ids, or several lists of token ids."""

from collections.abc import Sequence

from protocol.errors import InvalidRequest

TOKEN_IDS = 2**24
"""Some sixty times what the largest vocabulary has; the model's own is known to its engine alone."""
_TEXT = {"type": "string", "minLength": 1}
_IDS = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": TOKEN_IDS - 1}}
PROMPT_SCHEMA = {
    "anyOf": [
        _TEXT,
        {"type": "array", "minItems": 1, "items": _TEXT},
        _IDS,
        {"type": "array", "minItems": 1, "items": _IDS},
    ]
}
"""What `check_prompt` takes, as a JSON schema."""


def check_prompt(name: str, value: object) -> None:
    """Check the member `name` of a body.

    Raises:
        InvalidRequest: it is missing, empty, or of another type.
    """
    if value is None:
        raise InvalidRequest(f"{name}: Field required")
    if not isinstance(value, str | list | tuple):
        raise InvalidRequest(f"{name}: Input should be a text or a list")
    if not value:
        raise InvalidRequest(f"{name}: it is empty")
    if isinstance(value, str) or _all_token_ids(value):
        return
    for index, item in enumerate(value):
        if not isinstance(item, str) and not (isinstance(item, list | tuple) and _all_token_ids(item)):
            raise InvalidRequest(f"{name}.{index}: Input should be a text or a list of token ids")
        if not item:
            raise InvalidRequest(f"{name}.{index}: it is empty")


def separate(value: str | Sequence[str | int | Sequence[int]]) -> list[str | Sequence[int]]:
    """The single prompts in a checked one: texts and lists of token ids."""
    if isinstance(value, str):
        return [value]
    lone_ids = [item for item in value if isinstance(item, int)]
    return [lone_ids] if lone_ids else [item for item in value if not isinstance(item, int)]


def _all_token_ids(value: Sequence[object]) -> bool:
    # `type` and not isinstance: a bool is an int to Python and no token id to anybody.
    return all(type(item) is int and 0 <= item < TOKEN_IDS for item in value)
