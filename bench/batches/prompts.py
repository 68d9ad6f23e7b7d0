"""Rows of which several begin with the same long text, and what a cache could make of that. Pure."""

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

from protocol.wire import JsonObject

PREAMBLES = 8
LEAST_TOKENS = 512
CHARS_A_TOKEN = 4.0
"""Of these questions in English a token is a little longer, so that twice `LEAST_TOKENS` in characters are too few."""
PREAMBLE_CHARS = int(LEAST_TOKENS * CHARS_A_TOKEN * 1.25)


def with_preambles(bodies: Sequence[JsonObject], seed: int) -> list[JsonObject]:
    """Put one of the preambles before each chat, and shuffle the chats.

    A preamble is a run of other rows' questions, as examples of what is to come.
    """
    questions = [str(body["messages"][-1]["content"]) for body in bodies]
    share = len(bodies) // PREAMBLES
    texts = [_text(questions[number * share :] + questions) for number in range(PREAMBLES)]
    chats = [_preceded(body, texts[number % PREAMBLES]) for number, body in enumerate(bodies)]
    random.Random(seed).shuffle(chats)
    return chats


def _text(questions: Iterable[str]) -> str:
    text = "Such problems will be asked:"
    for question in questions:
        if len(text) >= PREAMBLE_CHARS:
            break
        text += f"\n- {question}"
    return text


def _preceded(body: JsonObject, text: str) -> JsonObject:
    system, *others = body["messages"]
    return body | {"messages": [system | {"content": f"{text}\n\n{system['content']}"}, *others]}


def common_tokens(prompts: Iterable[list[int]]) -> int:
    """So many tokens at least have two prompts in common that share a preamble.

    In sorted order those are neighbours; not counted are the places where one preamble gives way to the next.
    """
    shared = sorted(_common(one, other) for one, other in pairwise(sorted(prompts)))
    return shared[PREAMBLES - 1]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length


def possible_hits(prompts: Iterable[Sequence[int]], block_tokens: int) -> int:
    """Tokens that a cache without bounds would have, in whatever order the prompts come.

    vLLM keeps whole blocks, known by all that stands up to their end, and computes at least a prompt's last token:
    of each block all occurrences but the first are hits.
    """
    seen: set[tuple[int, ...]] = set()
    hits = 0
    for prompt in prompts:
        for end in range(block_tokens, len(prompt), block_tokens):
            chain = tuple(prompt[:end])
            hits += block_tokens if chain in seen else 0
            seen.add(chain)
    return hits
