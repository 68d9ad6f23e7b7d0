"""Chats for llama.cpp in which text that looks like a special token, such as `<|im_end|>`, is text and nothing else.

Its server renders a chat into one text and reads the special tokens of it, whoever wrote them: a message could end
its own turn. So the template is rendered with a mark within each such text, and the prompt is cut there: no piece
holds a whole one, and together they are the same text.
"""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from protocol.wire import JsonObject
from worker.engine.base import EngineDead, EngineRequest
from worker.engine.openai_http import Upstream

TIMEOUT_S = 60.0
"""Of a question: a body's 2 MiB are as many tokens as that at worst."""
_NAMES = frozenset({"role", "type"})
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
    """The special tokens' texts in them, the longest first: whose numbers come only where special tokens are read."""
    whole = "\n".join(_texts(messages))
    read, plain = await asyncio.gather(_tokens(server, whole, special=True), _tokens(server, whole, special=False))
    known = {token["id"] for token in plain}
    new = {token["piece"]: token["id"] for token in read if token["id"] not in known and _is_word(token["piece"])}
    # Beside a special token ordinary text may be cut otherwise too: by itself it is the same token again.
    alone = {token["id"] for token in await _tokens(server, "\n".join(new), special=False)} if new else set()
    return sorted((word for word, number in new.items() if number not in alone), key=len, reverse=True)


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


def _marked(value: JsonValue, special: Sequence[str], mark: str) -> JsonValue:
    if isinstance(value, str):
        for word in special:
            value = value.replace(word, word[:1] + mark + word[1:])
        return value
    if isinstance(value, list):
        return [_marked(member, special, mark) for member in value]
    if isinstance(value, dict):
        return {name: one if name in _NAMES else _marked(one, special, mark) for name, one in value.items()}
    return value
