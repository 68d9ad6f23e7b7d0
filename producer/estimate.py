"""What a job will cost, guessed from its checked body: tokens in, tokens out, and the prefix that it may share."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from producer.prompts import separate
from protocol import wire
from protocol.messages import Endpoint
from protocol.prefix import PREFIX_CHARS
from protocol.wire import JsonObject

BYTES_PER_TOKEN = 4
"""Usual for English text; other scripts have more bytes and more tokens."""
SPARSE_BYTES_PER_TOKEN = 8
"""Hardly any real text has more, so a prompt that is too long even at this rate is too long."""
TOKENS_PER_MESSAGE = 4
"""What a chat template adds: role and separators."""
TOKENS_PER_MEDIA_PART = 512
DEFAULT_OUTPUT_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens; `least_tokens` is what the longest prompt and the output that was asked for need at the very least."""

    prompt_tokens: int
    output_tokens: int
    least_tokens: int
    prefix: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """One prompt: its texts in the order of a chat template, or the number of its token ids."""

    texts: Sequence[str] = ()
    token_ids: int = 0
    overhead_tokens: int = 0

    @property
    def text_bytes(self) -> int:
        return sum(len(text.encode()) for text in self.texts)


def estimate(endpoint: Endpoint, body: JsonObject, tenant: str) -> Estimate:
    """Estimate a checked body; `tenant` is whose it is."""
    prompts = _prompts(endpoint, body)
    sizes = [prompt.text_bytes for prompt in prompts]
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    known = sum(prompt.token_ids + prompt.overhead_tokens for prompt in prompts)
    sparse = (prompt.token_ids + size // SPARSE_BYTES_PER_TOKEN for prompt, size in zip(prompts, sizes, strict=True))
    return Estimate(
        prompt_tokens=known + -(-sum(sizes) // BYTES_PER_TOKEN),
        output_tokens=0 if endpoint == "/v1/embeddings" else (limit or DEFAULT_OUTPUT_TOKENS) * (body.get("n") or 1),
        # Several prompts in one body don't share a context.
        least_tokens=max(sparse) + (limit or 0),
        prefix=prefix_hashes(tenant, body["model"], prompts[0].texts),
    )


def texts_of(endpoint: Endpoint, body: JsonObject) -> Sequence[str]:
    """The texts of a checked body's first prompt, in the order of a chat template; none where it is token ids."""
    return _prompts(endpoint, body)[0].texts


def prefix_hashes(
    tenant: str, model: str, texts: Sequence[str], places: Sequence[int] = PREFIX_CHARS
) -> tuple[str, ...]:
    """Chained hashes of the prompt up to each of `places`, in characters, that it reaches: equal hashes, shared prefix.

    Engines part their prefix caches by tenant, so equal prompts of two tenants share nothing.
    """
    chars = sum(map(len, texts))
    if chars < places[0]:
        return ()
    head = "".join(texts)
    # No name of a tenant holds a slash.
    hashes, last, begin = [], f"{tenant}/{model}/", 0
    for end in takewhile(chars.__ge__, places):
        block = last + head[begin:end]
        last, begin = hashlib.blake2b(block.encode(), digest_size=8).hexdigest(), end
        hashes.append(last)
    return tuple(hashes)


def _prompts(endpoint: Endpoint, body: JsonObject) -> list[_Prompt]:
    return [_chat(body)] if endpoint == "/v1/chat/completions" else _plain(body.get("prompt") or body["input"])


def _chat(body: JsonObject) -> _Prompt:
    messages = body["messages"]
    texts = [wire.dumps(body["tools"]).decode()] if body.get("tools") else []
    media = 0
    for message in messages:
        texts.append(message["role"])
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
        elif content:
            texts += (part["text"] for part in content if part.get("text"))
            media += sum(part["type"] != "text" for part in content)
    return _Prompt(texts, overhead_tokens=TOKENS_PER_MESSAGE * len(messages) + TOKENS_PER_MEDIA_PART * media)


def _plain(prompt: str | Sequence[str | int | Sequence[int]]) -> list[_Prompt]:
    return [_Prompt((p,)) if isinstance(p, str) else _Prompt(token_ids=len(p)) for p in separate(prompt)]
