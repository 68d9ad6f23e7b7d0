"""Bodies that have killed the engine or the server of some version of vLLM, refused before they reach it.

Each check names what happened in reports of users. Newer versions refuse most of these themselves; which one runs is
the operator's choice, and one such body ends all requests of its engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import NoReturn

from protocol.errors import InvalidRequest
from protocol.media import check_parts
from protocol.messages import Endpoint
from protocol.wire import JsonObject
from worker.engine.answers import error_body
from worker.engine.base import EngineRefused
from worker.engine.vllm.constraints import constraints
from worker.engine.vllm.schemas import Unfit

MOST_BIASES = MOST_STOP_IDS = 1_024
MOST_STOPS = 64
MOST_BAD_WORDS = 1_024
INT64, INT32 = 2**63, 2**31


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What the model takes; 0 is unknown, and then not checked."""

    vocabulary: int = 0
    """Token ids are below it."""
    context_tokens: int = 0


def check_body(endpoint: Endpoint, body: JsonObject, limits: BodyLimits) -> None:
    """Let pass what no version is known to have died of.

    Raises:
        EngineRefused: with status 400; the message names the member and repeats nothing of its value.
    """
    _check_prompts(endpoint, body, limits)
    _check_media(body)
    _check_identity(body)
    if endpoint == "/v1/embeddings":
        return
    _check_token_ids(body, limits)
    _check_numbers(body)
    _check_words(body)
    _check_template(body)
    for where, check, value in constraints(body):
        try:
            check(value)
        except Unfit as unfit:
            _refuse(f"{where}: {unfit}", "invalid_grammar")


def _refuse(message: str, code: str = "invalid_value") -> NoReturn:
    raise EngineRefused(400, error_body(message, code)) from None


def _check_prompts(endpoint: Endpoint, body: JsonObject, limits: BodyLimits) -> None:
    """Ids outside the vocabulary are indices beyond the embedding table: an assertion on the device.

    Empty prompts, and those between the fitted and the advertised context length, broke the scheduler.
    """
    name = "input" if endpoint == "/v1/embeddings" else "prompt"
    prompt = body.get(name)
    if not isinstance(prompt, list):
        return
    plain = all(not isinstance(item, list | str) for item in prompt)
    output = 0 if endpoint == "/v1/embeddings" else 1
    for ids in [prompt] if plain else [item for item in prompt if isinstance(item, list)]:
        if not ids:
            _refuse(f"{name}: it is empty")
        _check_ids(name, ids, limits)
        if 0 < limits.context_tokens < len(ids) + output and body.get("truncate_prompt_tokens") is None:
            message = f"{name}: it has {len(ids)} tokens; the model takes {limits.context_tokens}, output included"
            _refuse(message, "context_length_exceeded")


def _check_media(body: JsonObject) -> None:
    """The producer has refused these: what it never saw was written into Redis by hand."""
    messages = body.get("messages")
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        try:
            check_parts(f"messages.{index}.content", content if isinstance(content, list) else ())
        except InvalidRequest as error:
            _refuse(error.message)


def _check_identity(body: JsonObject) -> None:
    """A request id of another type, or one twice, ended the engine; the worker sets these itself."""
    for name in ("request_id", "session_id", "cache_salt"):
        value = body.get(name)
        if value is not None and not (isinstance(value, str) and value):
            _refuse(f"{name}: a text is required")
    if not _is_integer(body.get("priority", 0), INT32):
        _refuse("priority: a 32-bit integer is required")
    if body.get("kv_cache_report_mode") not in (None, "incremental"):
        _refuse("kv_cache_report_mode: only incremental; the worker counts blocks by these events")


def _check_token_ids(body: JsonObject, limits: BodyLimits) -> None:
    """One outside the vocabulary is an index beyond the logits.

    On some devices that is an assertion, which ends the engine; on others it writes into the rows of neighbours.
    """
    biases = body.get("logit_bias")
    if biases is not None:
        if not isinstance(biases, dict) or len(biases) > MOST_BIASES:
            _refuse(f"logit_bias: an object of at most {MOST_BIASES} members is required")
        _check_ids("logit_bias", [_id_of(key) for key in biases], limits)
        if not all(_is_number(bias) for bias in biases.values()):
            _refuse("logit_bias: its values must be numbers")
    for name, most in (("stop_token_ids", MOST_STOP_IDS), ("allowed_token_ids", 0), ("logprob_token_ids", 0)):
        ids = body.get(name)
        if ids is None:
            continue
        if not isinstance(ids, list) or 0 < most < len(ids):
            _refuse(f"{name}: a list {f'of at most {most} token ids ' if most else ''}is required")
        if not ids and name == "allowed_token_ids":
            _refuse(f"{name}: it is empty")  # It masks all logits out.
        _check_ids(name, ids, limits)


def _check_ids(name: str, ids: Sequence[object], limits: BodyLimits) -> None:
    most = limits.vocabulary or INT32
    # `type` and not isinstance: a bool is an int to Python and no token id to anybody.
    if not all(type(item) is int and 0 <= item < most for item in ids):
        _refuse(f"{name}: token ids must be integers from 0 to {most - 1}", "invalid_token_id")


def _id_of(key: object) -> int:
    """A token id that is a member's name; -1 when it is none."""
    fits = isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 20
    return int(str(key)) if fits else -1


def _check_numbers(body: JsonObject) -> None:
    """A seed of 2⁶⁴ overflowed in the sampler; a fraction for `top_k` ended the engine's loop."""
    if not _is_integer(body.get("seed", 0), INT64):
        _refuse("seed: a 64-bit integer is required")
    for name in ("top_k", "min_tokens", "prompt_logprobs", "truncate_prompt_tokens"):
        if not _is_integer(body.get(name, 0), INT32):
            _refuse(f"{name}: a 32-bit integer is required")


def _is_integer(value: object, bound: int) -> bool:
    return value is None or (type(value) is int and -bound <= value < bound)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _check_words(body: JsonObject) -> None:
    """Each word is looked for, or tokenized, at every step or before the first: lists without end stalled servers."""
    for name, most in (("stop", MOST_STOPS), ("bad_words", MOST_BAD_WORDS)):
        words = body.get(name)
        if words is None or (name == "stop" and isinstance(words, str)):
            continue
        if not isinstance(words, list) or len(words) > most or not all(isinstance(word, str) for word in words):
            _refuse(f"{name}: a list of at most {most} texts is required")
        if name == "bad_words" and "" in words:
            _refuse(f"{name}: an empty text is in it")


def _check_template(body: JsonObject) -> None:
    """A template of the user's own runs inside the server and can loop there for ever.

    The arguments `tokenize` and `chat_template` have blocked it too; tensors in `prompt_embeds` corrupted its memory.
    """
    for name in ("chat_template", "prompt_embeds"):
        if body.get(name) is not None:
            _refuse(f"{name}: not taken, it can stop the engine for everybody")
    arguments = body.get("chat_template_kwargs")
    if arguments is None:
        return
    if not isinstance(arguments, dict) or arguments.keys() & {"tokenize", "chat_template"}:
        _refuse("chat_template_kwargs: an object without tokenize and chat_template is required")
