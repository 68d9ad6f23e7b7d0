"""Chats for llama.cpp in which text that looks like a special token, such as `<|im_end|>`, is text and nothing else.

Its server renders a chat into one text and reads the special tokens of it, whoever wrote them: a message could end
its own turn. So the template is rendered with a mark within each such text, and the prompt is cut there: no piece
holds a whole one, and together they are the same text. Where a message has several parts, a template may put them
together without a sign between them, some after trimming each: a special token of two parts' text is cut as well.
"""

import asyncio
import re
import secrets
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from protocol.wire import JsonObject
from worker.engine.base import EngineDead, EngineRequest
from worker.engine.openai_http import Upstream

TIMEOUT_S = 60.0
"""Of a question: a body's 2 MiB are as many tokens as that at worst."""
_NAMES = frozenset({"role", "type"})
_TRIMS = (str, str.strip)
"""What templates do to a part's text."""
JsonValue = Any


async def literal(server: Upstream, request: EngineRequest) -> EngineRequest:
    """The completion that answers a chat with such texts; the request itself where there are none.

    It is left as it is too where a completion could not answer it: with tools, a response format or media.

    Raises:
        EngineDead: the server does not answer.
    """
    body = request.body
    if request.endpoint != "/v1/chat/completions" or not _is_plain(body):
        return request
    messages = body["messages"]
    special = await _special(server, messages)
    if not special:
        return request
    mark = secrets.token_hex(16)
    rendered = await _ask(server, "/apply-template", {**body, "messages": _marked(messages, special, mark)})
    *parts, last = str(rendered.get("prompt", "")).split(mark)
    end = [token["id"] for token in await _tokens(server, last, special=True)]
    if not parts or not end:
        return request
    kept = {name: value for name, value in body.items() if name not in ("messages", "logprobs", "top_logprobs")}
    told = {"n_probs": body.get("top_logprobs") or 1} if body.get("logprobs") else {}
    # With a number among them the texts are pieces of one prompt, not prompts.
    completion = {**kept, **told, "prompt": [*parts, *end]}
    return replace(request, endpoint="/v1/completions", body=completion)


def as_chat(chunk: JsonObject, *, first: bool) -> JsonObject:
    """A chunk of that completion as the chat's; the first says who speaks."""
    role = {"role": "assistant"} if first else {}
    choices = [
        {name: value for name, value in choice.items() if name != "text"}
        | {"delta": {**role, **({"content": choice["text"]} if choice.get("text") else {})}}
        for choice in chunk["choices"]
    ]
    return {**chunk, "object": "chat.completion.chunk", "choices": choices}


def _is_plain(body: JsonObject) -> bool:
    if body.get("tools") or body.get("response_format") not in (None, {"type": "text"}):
        return False
    contents = [message.get("content") for message in body["messages"]]
    return all(part.get("type") == "text" for content in contents if isinstance(content, list) for part in content)


async def _special(server: Upstream, messages: JsonValue) -> list[str]:
    """The special tokens' texts in them, whose numbers come only where special tokens are read."""
    found = await asyncio.gather(*(_special_in(server, text) for text in _readings(messages)))
    return sorted({word for words in found for word in words})


async def _special_in(server: Upstream, text: str) -> list[str]:
    read, plain = await asyncio.gather(_tokens(server, text, special=True), _tokens(server, text, special=False))
    known = {token["id"] for token in plain}
    new = {token["piece"]: token["id"] for token in read if token["id"] not in known and _is_word(token["piece"])}
    # Beside a special token ordinary text may be cut otherwise too: by itself it is the same token again.
    alone = {token["id"] for token in await _tokens(server, "\n".join(new), special=False)} if new else set()
    return [word for word, number in new.items() if number not in alone]


def _readings(messages: JsonValue) -> set[str]:
    """All texts apart, and those of each message's parts together, as they are and trimmed."""
    several = [parts for message in messages if len(parts := _parts(message)) > 1]
    together = {"\n".join("".join(map(trim, parts)) for parts in several) for trim in _TRIMS} if several else set()
    return {"\n".join(_texts(messages)), *together}


def _parts(message: JsonObject) -> list[str]:
    """The texts of its content's parts; none where the content is one text."""
    content = message.get("content")
    return [part.get("text") or "" for part in content] if isinstance(content, list) else []


def _is_word(piece: object) -> bool:
    """Whether a mark can stand in it; bytes that are no text come as a list."""
    return isinstance(piece, str) and len(piece) > 1


async def _tokens(server: Upstream, text: str, *, special: bool) -> list[JsonObject]:
    question = {"content": text, "add_special": False, "parse_special": special, "with_pieces": True}
    found: list[JsonObject] = (await _ask(server, "/tokenize", question)).get("tokens") or []
    return found


async def _ask(server: Upstream, path: str, question: JsonObject) -> JsonObject:
    """Empty where it refuses: it will refuse the chat as well, and say why."""
    status, answer = await server.post(path, question, TIMEOUT_S)
    if status == 0:
        raise EngineDead(f"llama.cpp did not answer to {path}", reached=False)
    return answer if status == 200 else {}


def _texts(value: JsonValue) -> Iterator[str]:
    """But for those that only name something, which is as `_marked` has it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        members = value if isinstance(value, list) else [one for name, one in value.items() if name not in _NAMES]
        for member in members:
            yield from _texts(member)


def _marked(messages: Sequence[JsonObject], special: Sequence[str], mark: str) -> list[JsonObject]:
    # Looking ahead alone it finds each place where one begins, also within another.
    words = re.compile(f"(?={'|'.join(map(re.escape, special))})")
    marked: list[JsonObject] = _within(messages, words, mark)
    for message, original in zip(marked, messages, strict=True):
        if texts := _cut(_parts(original), words, mark):
            parts = zip(message["content"], texts, strict=True)
            message["content"] = [{**part, "text": text} if text else part for part, text in parts]
    return marked


def _within(value: JsonValue, words: re.Pattern[str], mark: str) -> JsonValue:
    if isinstance(value, str):
        return _cut([value], words, mark)[0]
    if isinstance(value, list):
        return [_within(member, words, mark) for member in value]
    if isinstance(value, dict):
        return {name: one if name in _NAMES else _within(one, words, mark) for name, one in value.items()}
    return value


def _cut(texts: Sequence[str], words: re.Pattern[str], mark: str) -> list[str]:
    """The texts with a mark behind the first character of each word, also of one that goes on in the next texts.

    There it is between no spaces, so that a template trims what it trimmed before.
    """
    cuts: list[set[int]] = [set() for _ in texts]
    for trim in _TRIMS:
        shown = [trim(text) for text in texts]
        starts = list(accumulate(map(len, shown), initial=0))
        for found in words.finditer("".join(shown)):
            index = bisect_right(starts, found.start()) - 1
            cuts[index].add(found.start() - starts[index] + texts[index].index(shown[index]) + 1)
    places = [[0, *sorted(at), len(text)] for text, at in zip(texts, cuts, strict=True)]
    return [mark.join(text[a:b] for a, b in pairwise(at)) for text, at in zip(texts, places, strict=True)]
