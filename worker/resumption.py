"""An attempt that goes on with the text of earlier ones: what it asks, and how its chunks join theirs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocol.log import get_logger
from protocol.messages import Frame, Position
from protocol.wire import JsonObject
from worker.continuation import (
    NotContinuable,
    Partial,
    continuation,
    continuation_by_tokens,
    member_that_counts,
    read_partial,
    rest_of_budget,
)
from worker.engine.answers import usage
from worker.engine.base import Engine, EngineRequest
from worker.engine.openai_rules import speaks
from worker.engine.token_ids import ids_of

_KEPT = ("id", "object", "created", "model")
_LONGEST_CHARACTER = 4
"""Tokens that a character's bytes may be spread over."""
_log = get_logger("worker")


@dataclass(frozen=True, slots=True)
class Resumption:
    """How an attempt goes on.

    Attributes:
        said: the chunks of earlier attempts.
        after: the last frame of theirs.
        tokens: how many tokens are said.
        opening: what those say beyond the text that was sent; comes before all that the engine says.
        request: what the engine is asked; None when nothing is left to generate.
        closing: in that case what the answer lacks.
    """

    said: tuple[JsonObject, ...]
    after: Position
    tokens: int
    opening: tuple[JsonObject, ...] = ()
    request: EngineRequest | None = None
    closing: tuple[JsonObject, ...] = ()

    def joined(self, chunk: JsonObject) -> JsonObject | None:
        """A chunk of this attempt as one of the whole answer; None for one that only says who speaks."""
        choices = [self._alike(choice) for choice in chunk.get("choices") or ()]
        told = chunk | {"choices": choices}
        bare = choices and not speaks(told) and not any(choice.get("finish_reason") for choice in choices)
        if bare and not any(choice.get("token_ids") for choice in choices):
            return None
        told |= {name: self.said[0][name] for name in _KEPT if name in self.said[0]}
        if chunk.get("usage"):
            told["usage"] = _usage_of_all(chunk["usage"], self.tokens)
        return told

    def _alike(self, choice: JsonObject) -> JsonObject:
        """A completion's choice as a chat's, where it goes on with one."""
        if "text" not in choice or not _is_chat(self.said):
            return choice
        said = {"content": choice["text"]} if choice["text"] else {}
        return {**{name: value for name, value in choice.items() if name != "text"}, "delta": said}


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to ask for, before the budget: `tokens` of it are said, and `beyond` is what they say that was not sent."""

    request: EngineRequest
    tokens: int
    prompt_tokens: int
    beyond: str = ""


async def resume(engine: Engine, request: EngineRequest, frames: Sequence[Frame], *, chats: bool) -> Resumption | None:
    """How to go on from these frames; None to start over.

    Args:
        engine: asked what tokens the text is.
        request: the job as its user sent it.
        frames: what the attempts before have said.
        chats: see `continuation`.
    """
    said = tuple(chunk for frame in frames for chunk in frame.chunks)
    if not said:
        return None
    partial, after = read_partial(said), frames[-1].position
    if isinstance(partial, Partial) and partial.ended:
        tokens = sum(map(_tokens, frames))
        closing = () if any(chunk.get("usage") for chunk in said) else (_usage(said, request.prompt_tokens, tokens),)
        return Resumption(said, after, tokens, closing=closing)
    plan = (
        partial if isinstance(partial, NotContinuable) else await _plan(engine, request, partial, frames, chats=chats)
    )
    if isinstance(plan, NotContinuable):
        _log.info("attempt_starts_over", why=plan.reason)
        return None
    rest = rest_of_budget(plan.request.body, plan.tokens)
    _log.info("attempt_goes_on", after_tokens=plan.tokens, at_end=rest is None)
    opening = (_chunk(said, plan.beyond, None),) if plan.beyond else ()
    if rest is None:
        end = (_chunk(said, "", "length"), _usage(said, plan.prompt_tokens, plan.tokens))
        return Resumption(said, after, plan.tokens, closing=opening + end)
    longer = replace(plan.request, body=rest, prompt_tokens=request.prompt_tokens + plan.tokens)
    return Resumption(said, after, plan.tokens, opening, longer)


async def _plan(
    engine: Engine, request: EngineRequest, partial: Partial, frames: Sequence[Frame], *, chats: bool
) -> _Plan | NotContinuable:
    """By tokens where they are known, else by text."""
    if reason := member_that_counts(request.body):
        return NotContinuable(reason)
    prompt = ids_of(request.body.get("prompt")) or await engine.tokenize(request)
    if prompt and partial.text and (plan := await _by_tokens(engine, request, partial.text, frames, prompt)):
        return plan
    body = continuation(request.endpoint, request.body, partial.text, chats=chats)
    if isinstance(body, NotContinuable):
        return body
    longer = replace(request, body=body)
    # The engine's own count of the text; our count of chunks where it does not tell.
    told = len(await engine.tokenize(longer)) - len(prompt) if prompt else -1
    return _Plan(longer, told if told >= 0 else sum(map(_tokens, frames)), len(prompt) or request.prompt_tokens)


async def _by_tokens(
    engine: Engine, request: EngineRequest, text: str, frames: Sequence[Frame], prompt: list[int]
) -> _Plan | None:
    """None when the log's tokens are not its text."""
    said = [number for frame in frames for number in frame.ids]
    whole = await engine.detokenize(request, said) if said else ""
    for _ in range(_LONGEST_CHARACTER):
        if len(said) < 2 or not whole.endswith("\ufffd"):
            break
        # The last one holds a part of a character: it is generated once more.
        said.pop()
        whole = await engine.detokenize(request, said)
    body = continuation_by_tokens(request.body, whole, prompt, said)
    if isinstance(body, NotContinuable) or not whole.startswith(text):
        return None
    return _Plan(replace(request, endpoint="/v1/completions", body=body), len(said), len(prompt), whole[len(text) :])


def _tokens(frame: Frame) -> int:
    return len(frame.ids) or frame.tokens or sum(map(speaks, frame.chunks))


def _is_chat(said: Sequence[JsonObject]) -> bool:
    return any("delta" in choice for chunk in said for choice in chunk.get("choices") or ())


def _wrapped(said: Sequence[JsonObject], choices: list[JsonObject]) -> JsonObject:
    return {**{name: said[0][name] for name in _KEPT if name in said[0]}, "choices": choices}


def _chunk(said: Sequence[JsonObject], text: str, finish_reason: str | None) -> JsonObject:
    told: JsonObject = {"delta": {"content": text} if text else {}} if _is_chat(said) else {"text": text}
    return _wrapped(said, [{"index": 0, **told, "logprobs": None, "finish_reason": finish_reason}])


def _usage(said: Sequence[JsonObject], prompt_tokens: int, tokens: int) -> JsonObject:
    return _wrapped(said, []) | {"usage": usage(prompt_tokens, tokens)}


def _usage_of_all(told: JsonObject, tokens: int) -> JsonObject:
    """What was said before was prompt to the engine, and is completion to the user; the total is the same."""
    prompt = max(0, told.get("prompt_tokens", 0) - tokens)
    details = told.get("prompt_tokens_details")
    whole = {**told, "prompt_tokens": prompt, "completion_tokens": told.get("completion_tokens", 0) + tokens}
    if details and details.get("cached_tokens"):
        whole["prompt_tokens_details"] = {**details, "cached_tokens": min(prompt, details["cached_tokens"])}
    return whole
