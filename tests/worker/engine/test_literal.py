"""Texts like special tokens, however a chat template puts the parts of a message together."""

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.worker.engine.attempts import chat
from worker.engine.base import EngineRequest
from worker.engine.literal import literal
from worker.engine.openai_http import Upstream

SPECIAL = ("<|im_end|>", "<|im_start|>", "<s><s>")
NUMBERS = {word: 100_000_000 + number for number, word in enumerate(SPECIAL)}
WORDS = re.compile("|".join(map(re.escape, SPECIAL)))
Join = Callable[[list[str]], str]
JOINS: dict[str, Join] = {
    "nothing": "".join,
    "newlines": "\n".join,
    "nothing, trimmed": lambda texts: "".join(text.strip() for text in texts),
}


def tokens(text: str, *, special: bool) -> list[dict[str, Any]]:
    """A token a character, but for special ones, which have one each."""
    pieces = re.findall(f"{WORDS.pattern}|.", text, re.DOTALL) if special else list(text)
    return [{"id": NUMBERS.get(piece) or ord(piece[0]), "piece": piece} for piece in pieces]


def rendered(messages: list[dict[str, Any]], join: Join) -> str:
    contents = [message["content"] for message in messages]
    texts = [each if isinstance(each, str) else join([part["text"] for part in each]) for each in contents]
    return "".join(f"<|im_start|>user\n{text}<|im_end|>\n" for text in texts) + "<|im_start|>assistant\n"


@pytest.fixture(params=JOINS)
def join(request: pytest.FixtureRequest) -> Join:
    return JOINS[request.param]


@pytest.fixture
async def server(join: Join) -> AsyncIterator[Upstream]:
    async def tokenize(request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"tokens": tokens(asked["content"], special=asked["parse_special"])})

    async def template(request: web.Request) -> web.Response:
        return web.json_response({"prompt": rendered((await request.json())["messages"], join)})

    app = web.Application()
    app.router.add_post("/tokenize", tokenize)
    app.router.add_post("/apply-template", template)
    async with TestServer(app) as running:
        upstream = Upstream(str(running.make_url("/")))
        yield upstream
        await upstream.close()


def asked_with(content: Any) -> EngineRequest:
    """Several texts are a content's parts."""
    parts: Any = content if isinstance(content, str) else [{"type": "text", "text": text} for text in content]
    return chat(parts)


SPLIT: list[Any] = [
    ["a<|im_", "end|>b"],
    ["a<", "|im_end|>b"],
    ["a<|im_end|", ">b"],
    ["<", "|im", "", "_end|", ">", "<|im_end|>"],
    [" a <|im_\n", "\t end|> b "],
    ["<|im_end|>", "<|im_", "end|><|im_end|>"],
    ["<s>", "<s>", "<s>"],
    ["<s><s><s>"],
    "<s><s><s>",
    "a<|im_end|>b",
]


@pytest.mark.parametrize("content", SPLIT)
async def test_no_token_of_a_message_is_special(server: Upstream, join: Join, content: Any) -> None:
    wanted = asked_with(content)
    plain = rendered(wanted.body["messages"], join)
    asked = await literal(server, wanted)
    assert asked.endpoint == "/v1/completions"
    prompt = asked.body["prompt"]
    pieces = [piece for piece in prompt if isinstance(piece, str)]
    end = [number for number in prompt if isinstance(number, int)]
    words = {number: word for word, number in NUMBERS.items()}
    last = "".join(words.get(number) or chr(number) for number in end)
    assert "".join(pieces) + last == plain
    # The template's own alone: the turn's first in the first piece, and what ends it behind the last mark.
    assert sum(len(WORDS.findall(piece)) for piece in pieces) + sum(number in words for number in end) == 3
    assert WORDS.findall(pieces[0]) == ["<|im_start|>"]


async def test_other_members_of_parts_do_not_hide_it(server: Upstream) -> None:
    parts: Any = [{"type": "text", "text": text, "note": "n", "odd": ["<|im_end|>"]} for text in ("<|im_", "end|>")]
    asked = await literal(server, chat(parts))
    assert all("<|im_end|>" not in piece for piece in asked.body["prompt"] if isinstance(piece, str))


@pytest.mark.parametrize("content", ["hello", ["a", "b"], ["<|im_", "start"]])
async def test_a_chat_without_such_texts_stays_as_it_is(server: Upstream, content: Any) -> None:
    wanted = asked_with(content)
    assert await literal(server, wanted) is wanted
