"""An attempt that goes on with the text of earlier ones: what it asks, and how its chunks join theirs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocol.log import get_logger
from protocol.messages import Frame, Position
from protocol.wire import JsonObject
from worker.continuation import NotContinuable, Partial, continuation, read_partial, rest_of_budget
from worker.engine.answers import usage
from worker.engine.base import Engine, EngineRequest
from worker.engine.openai_rules import speaks

_KEPT = ("id", "object", "created", "model")
_log = get_logger("worker")


@dataclass(frozen=True, slots=True)
class Resumption:
    """How an attempt goes on.

    Attributes:
        said: the chunks of earlier attempts.
        after: the last frame of theirs.
        tokens: how many their text is.
        request: what the engine is asked; None when nothing is left to generate.
        closing: in that case what the answer lacks.
    """

    said: tuple[JsonObject, ...]
    after: Position
    tokens: int
    request: EngineRequest | None
    closing: tuple[JsonObject, ...] = ()

    def joined(self, chunk: JsonObject) -> JsonObject | None:
        """A chunk of this attempt as one of the whole answer; None for one that only says who speaks."""
        choices = chunk.get("choices") or ()
        if choices and not speaks(chunk) and not any(choice.get("finish_reason") for choice in choices):
            return None
        joined = chunk | {name: self.said[0][name] for name in ("id", "created") if name in self.said[0]}
        if chunk.get("usage"):
            joined["usage"] = _usage_of_all(chunk["usage"], self.tokens)
        return joined


async def resume(engine: Engine, request: EngineRequest, frames: Sequence[Frame], *, chats: bool) -> Resumption | None:
    """How to go on from these frames; None to start over.

    Args:
        engine: asked how many tokens the text is.
        request: the job as its user sent it.
        frames: what the attempts before have said.
        chats: see `continuation`.
    """
    said = tuple(chunk for frame in frames for chunk in frame.chunks)
    if not said:
        return None
    partial = read_partial(said)
    after, tokens = frames[-1].position, sum(map(_tokens, frames))
    if isinstance(partial, Partial) and partial.ended:
        closing = () if any(chunk.get("usage") for chunk in said) else (_closing(said[-1], request, tokens),)
        return Resumption(said, after, tokens, None, closing)
    body = partial if isinstance(partial, NotContinuable) else _body(request, partial, chats=chats)
    if isinstance(body, NotContinuable):
        _log.info("starts_over", request=request.request_id, why=body.reason)
        return None
    return await _within_budget(engine, request, body, Resumption(said, after, tokens, None))


def _body(request: EngineRequest, partial: Partial, *, chats: bool) -> JsonObject | NotContinuable:
    return continuation(request.endpoint, request.body, partial.text, chats=chats)


async def _within_budget(engine: Engine, request: EngineRequest, body: JsonObject, plan: Resumption) -> Resumption:
    """Count the tokens that were said, and ask for those that are left."""
    longer = replace(request, body=body)
    before, after = await asyncio.gather(engine.count_prompt(request), engine.count_prompt(longer))
    # The engine's own count of the text; our count of chunks where it does not tell.
    tokens = after - before if 0 < before <= after else plan.tokens
    rest = rest_of_budget(body, tokens)
    _log.info("goes_on", request=request.request_id, after_tokens=tokens, at_end=rest is None)
    if rest is None:
        known = replace(request, prompt_tokens=before or request.prompt_tokens)
        end = _wrapped(plan.said[-1], [_length_choice(request)])
        return replace(plan, tokens=tokens, closing=(end, _closing(plan.said[-1], known, tokens)))
    longer = replace(longer, body=rest, prompt_tokens=request.prompt_tokens + tokens)
    return replace(plan, tokens=tokens, request=longer)


def _tokens(frame: Frame) -> int:
    return frame.tokens or sum(map(speaks, frame.chunks))


def _wrapped(like: JsonObject, choices: list[JsonObject]) -> JsonObject:
    return {**{name: like[name] for name in _KEPT if name in like}, "choices": choices}


def _length_choice(request: EngineRequest) -> JsonObject:
    said: JsonObject = {"text": ""} if request.endpoint == "/v1/completions" else {"delta": {}}
    return {"index": 0, **said, "logprobs": None, "finish_reason": "length"}


def _closing(like: JsonObject, request: EngineRequest, tokens: int) -> JsonObject:
    return _wrapped(like, []) | {"usage": usage(request.prompt_tokens, tokens)}


def _usage_of_all(told: JsonObject, tokens: int) -> JsonObject:
    """What was said before was prompt to the engine, and is completion to the user; the total is the same."""
    prompt = max(0, told.get("prompt_tokens", 0) - tokens)
    details = told.get("prompt_tokens_details")
    whole = {**told, "prompt_tokens": prompt, "completion_tokens": told.get("completion_tokens", 0) + tokens}
    if details and details.get("cached_tokens"):
        whole["prompt_tokens_details"] = {**details, "cached_tokens": min(prompt, details["cached_tokens"])}
    return whole
