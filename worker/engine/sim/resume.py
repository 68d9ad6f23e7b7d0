"""Where a simulated answer goes on: a prompt that ends with the beginning of its own answer is one that was cut."""

import re
from dataclasses import dataclass

from protocol.messages import Endpoint
from protocol.wire import JsonObject, dumps
from worker.engine.sim.text import WORDS, seed_of, word

_FIRST = re.compile("|".join(one.capitalize() for one in WORDS))
_LAST = re.compile(rf"(?:{'|'.join(WORDS)})\.?\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Begun:
    """What a body asks for: the prompt alone, and how many tokens of its answer are there already."""

    content: bytes
    position: int = 0


def begun(endpoint: Endpoint, body: JsonObject, content: object) -> Begun:
    """Tell prompt and beginning apart: by the last message of a chat that says so, by the text of a completion.

    Args:
        endpoint: where the body was sent.
        body: the request's.
        content: its prompt, messages or input.
    """
    seed = body.get("seed")
    whole = Begun(dumps([content, seed]))
    if endpoint == "/v1/chat/completions" and body.get("continue_final_message") is True and isinstance(content, list):
        last = content[-1].get("content") if isinstance(content[-1], dict) else None
        prompt = Begun(dumps([content[:-1], seed]))
        return _at(prompt.content, last) or whole if isinstance(last, str) else whole
    if endpoint == "/v1/completions" and isinstance(content, str) and _LAST.search(content[-16:]):
        splits = (match.start() for match in _FIRST.finditer(content) if match.start())
        found = (_at(dumps([content[:at], seed]), content[at:]) for at in splits)
        return next((one for one in found if one), whole)
    return whole


def _at(content: bytes, text: str) -> Begun | None:
    """The place after `text` in the answer to a prompt; None when that answer does not begin so."""
    seed, at, position = seed_of(content), 0, 0
    while at < len(text):
        token = word(seed, position)
        if not text.startswith(token, at):
            return None
        at, position = at + len(token), position + 1
    return Begun(content, position)
