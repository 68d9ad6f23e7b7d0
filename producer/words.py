"""What pydantic finds wrong, in words for who wrote it: its own name our classes, and some say little."""

from collections.abc import Iterable

from pydantic_core import ErrorDetails

MESSAGE = '{"role": "user", "content": "…"}'
"""The least that a chat holds."""
_WORDS = {
    "list_type": "a list is required",
    "dict_type": "an object is required",
    "model_type": "an object is required",
    "model_attributes_type": "an object is required",
}
_LIKE = {("messages",): f", such as [{MESSAGE}]", ("messages", int): f", such as {MESSAGE}"}


def words_of(problem: ErrorDetails, members: Iterable[str] = ()) -> str:
    """What is wrong; `members` are those that there are where one is that there is not."""
    if problem["type"] == "extra_forbidden" and members:
        return f"no such member; there are {', '.join(members)}"
    if (told := _WORDS.get(problem["type"])) is None:
        return problem["msg"]
    place = tuple(int if isinstance(part, int) else part for part in problem["loc"])
    return told + _LIKE.get(place, "")
