"""Whether a job can go on from what earlier attempts have said, and with which body: pure.

docs/reliability.md has the same rules as a table. What is not known to be harmless makes a job start over.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from protocol.messages import Endpoint
from protocol.wire import JsonObject

_HARMLESS = frozenset(
    (
        *("model", "messages", "prompt", "stream", "stream_options", "continue_final_message"),
        *("max_tokens", "max_completion_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos"),
        *("temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "logit_bias", "seed"),
        *("include_stop_str_in_output", "add_special_tokens", "spaces_between_special_tokens", "chat_template_kwargs"),
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "cache_prompt"),
        *("parallel_tool_calls", "priority", "cache_salt", "stream_interval"),
    )
)
"""Members that mean the same for the rest of a text as for the whole; some have rules of their own below."""
_ONLY: Mapping[str, Sequence[object]] = {
    "n": [1],
    "best_of": [1],
    "echo": [False],
    "suffix": [""],
    "logprobs": [False],
    "top_logprobs": [0],
    # They count what was generated, and that is prompt then.
    "frequency_penalty": [0, 0.0],
    "presence_penalty": [0, 0.0],
    "tools": [[]],
    "tool_choice": ["none", "auto"],
    "response_format": [{"type": "text"}],
    "skip_special_tokens": [True],
    "return_token_ids": [False],
    "add_generation_prompt": [True],
}
"""Members that must be missing, null or one of these."""
_BUDGETS = ("max_tokens", "max_completion_tokens")
_CHATS_OWN = frozenset(
    (
        *("messages", "add_generation_prompt", "continue_final_message", "chat_template_kwargs"),
        *("max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls"),
        *("logprobs", "top_logprobs", "store", "metadata"),
    )
)
"""Members of chats that completions do not have, or that are in the prompt."""


@dataclass(frozen=True, slots=True)
class NotContinuable:
    """The job starts over, and why; free of the prompt."""

    reason: str


@dataclass(frozen=True, slots=True)
class Partial:
    """What the chunks of an answer have said so far: the text of its only choice; `ended` when that is all of it."""

    text: str
    ended: bool = False


def read_partial(chunks: Iterable[JsonObject]) -> Partial | NotContinuable:
    """Read the chunks of a partial answer, in order."""
    texts: list[str] = []
    ended = False
    for chunk in chunks:
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != 0:
                return NotContinuable("it has several choices")
            if choice.get("logprobs"):
                return NotContinuable("its chunks have log probabilities")
            said = (choice["delta"] or {}) if "delta" in choice else choice
            if said is not choice and any(value for name, value in said.items() if name not in ("role", "content")):
                return NotContinuable("it says more than plain text: reasoning, a tool call or a refusal")
            text = said.get("text" if said is choice else "content") or ""
            if not isinstance(text, str):
                return NotContinuable("its content is not one text")
            texts.append(text)
            ended = ended or bool(choice.get("finish_reason"))
    return Partial("".join(texts), ended)


def continuation(endpoint: Endpoint, body: JsonObject, text: str, *, chats: bool) -> JsonObject | NotContinuable:
    """The body that asks for the rest of an answer; its limits are still those of the whole.

    Args:
        endpoint: where the body goes.
        body: the user's.
        text: what was said so far.
        chats: whether the engine is known to go on with an assistant's message.
    """
    if endpoint == "/v1/embeddings":
        return NotContinuable("embeddings have no text")
    if reason := member_that_counts(body) or _end_that_counts(body, text):
        return NotContinuable(reason)
    if not text:
        return body
    if endpoint == "/v1/completions":
        return _completion(body, text)
    if not chats:
        return NotContinuable("its engine is not known to go on with an assistant's message")
    return _chat(body, text)


def continuation_by_tokens(
    body: JsonObject, text: str, prompt: Sequence[int], said: Sequence[int]
) -> JsonObject | NotContinuable:
    """The same for `/v1/completions` in tokens: exact, whatever the text's pieces would be made of a second time.

    Args:
        body: the user's, of a chat or a completion.
        text: what was said so far, by its tokens.
        prompt: the tokens of the user's prompt.
        said: those of the text.
    """
    if reason := member_that_counts(body) or _end_that_counts(body, text) or _more_than_text(body):
        return NotContinuable(reason)
    limits = [body[name] for name in _BUDGETS if body.get(name) is not None]
    if not limits:
        return NotContinuable("it has no max_tokens, and completions have another default than chats")
    kept = {name: value for name, value in body.items() if name not in _CHATS_OWN}
    return {**kept, "prompt": [*prompt, *said], "max_tokens": min(limits)}


def rest_of_budget(body: JsonObject, tokens: int) -> JsonObject | None:
    """The body with its limits less the tokens that were said; None when none are left."""
    told = {name: body[name] for name in (*_BUDGETS, "min_tokens") if isinstance(body.get(name), int)}
    rest = {name: max(0, value - tokens) for name, value in told.items()}
    return None if any(rest.get(name) == 0 for name in _BUDGETS) else {**body, **rest}


def member_that_counts(body: JsonObject) -> str:
    """Why a member makes the job start over; empty when none does."""
    for name, value in body.items():
        if value is None or name in _HARMLESS:
            continue
        if name == "add_generation_prompt" and body.get("continue_final_message") is True:
            continue
        # By type too: to Python False is 0, which asks for log probabilities.
        if not any(value == fine and type(value) is type(fine) for fine in _ONLY.get(name, ())):
            return f"its body has {name}" if name.isascii() and name.isidentifier() else "its body has unknown members"
    if body.get("seed") is not None and body.get("temperature") != 0:
        return "its body has a seed: the rest would be drawn from the seed's beginning"
    return ""


def _end_that_counts(body: JsonObject, text: str) -> str:
    """Why the place where the text was cut makes the job start over; empty when it does not."""
    stop = body.get("stop")
    for word in [stop] if isinstance(stop, str) else stop or ():
        if any(text.endswith(word[:length]) for length in range(1, len(word) + 1)):
            return "its text ends with a stop string or the beginning of one"
    return "its text ends within a character" if text.endswith("\ufffd") else ""


def _completion(body: JsonObject, text: str) -> JsonObject | NotContinuable:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        return NotContinuable("its prompt is not one text")
    if body.get("max_tokens") is None:
        return NotContinuable("it has no max_tokens, and engines differ in what they take instead")
    return {**body, "prompt": prompt + text}


def _chat(body: JsonObject, text: str) -> JsonObject | NotContinuable:
    messages: Sequence[JsonObject] = body.get("messages") or ()
    if reason := _more_than_text(body):
        return NotContinuable(reason)
    if text[-1].isspace():
        return NotContinuable("its text ends with white space, which chat templates may cut off")
    begun = body.get("continue_final_message") is True
    last = messages[-1] if messages else {}
    if begun and isinstance(last.get("content"), str):
        messages = [*messages[:-1], {**last, "content": last["content"] + text}]
    elif begun or last.get("role") == "assistant":
        return NotContinuable("it ends with an assistant's message")
    else:
        messages = [*messages, {"role": "assistant", "content": text}]
    return {**body, "messages": messages, "add_generation_prompt": False, "continue_final_message": True}


def _more_than_text(body: JsonObject) -> str:
    plain = all(_is_plain(message.get("content")) for message in body.get("messages") or ())
    return "" if plain else "its messages hold more than text"


def _is_plain(content: object) -> bool:
    if not isinstance(content, list):
        return content is None or isinstance(content, str)
    return all(isinstance(part, dict) and part.get("type") == "text" for part in content)
