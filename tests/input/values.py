"""Values as users send them, good and bad."""

from typing import Any

from hypothesis import strategies as st

CANARY = "canary-prompt"
"""Stands in what is sent; no error may repeat it."""
USER = {"role": "user", "content": CANARY}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.just(CANARY)
    | st.sampled_from([10**30, -1, 0, 2**31, 2**63, "\ud83d", "\x00", "\u202e", "<|im_start|>", "file:///etc/passwd"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
"""Of any type that Python's JSON has, and some that it can't write."""


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], **changes}


def nested(levels: int, value: Any = CANARY) -> Any:
    for _ in range(levels):
        value = [value]
    return value
