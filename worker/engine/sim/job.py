"""Reads a request as a simulated model does: how long the prompt is, and how long each answer gets."""

from dataclasses import dataclass

from protocol.wire import JsonObject
from worker.engine.answers import error_body
from worker.engine.base import EngineRefused, EngineRequest
from worker.engine.openai_rules import check_biases
from worker.engine.sim.resume import begun
from worker.engine.sim.text import natural_tokens, seed_of

BYTES_PER_TOKEN = 4
VOCABULARY = 128_256
"""Of Llama 3."""
_CONTENT_FIELD = {"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/embeddings": "input"}


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice of the answer, fixed before it is generated."""

    seed: int
    tokens: int
    finish_reason: str
    position: int = 0
    """Tokens that were generated before: the answer goes on after them."""


@dataclass(frozen=True, slots=True)
class SimJob:
    """A request as the simulated engine sees it."""

    content: bytes
    """The prompt, encoded; equal for equal prompts."""
    prompt_tokens: int
    answers: tuple[Answer, ...]
    """Empty for embeddings."""


def read_job(request: EngineRequest, context_tokens: int) -> SimJob:
    """What the request asks for.

    Raises:
        EngineRefused: content, limit or biases are missing or wrong, or the prompt is longer than the context.
    """
    body = request.body
    field = _CONTENT_FIELD[request.endpoint]
    if not body.get(field):
        raise _refusal(f"'{field}' is required", "missing_required_parameter")
    check_biases(body, VOCABULARY)
    start = begun(request.endpoint, body, body[field])
    content = start.content
    prompt_tokens = request.prompt_tokens or max(1, len(content) // BYTES_PER_TOKEN)
    room = context_tokens - prompt_tokens
    if room < 1:
        raise _refusal(f"the context length is {context_tokens} tokens", "context_length_exceeded")
    if request.endpoint == "/v1/embeddings":
        return SimJob(content, prompt_tokens, ())
    limit = min(_limit(body) or room, room)
    seeds = [seed_of(content, index) for index in range(_choices(body))]
    endless = body.get("ignore_eos") is True
    answers = tuple(_answer(seed, limit, start.position, endless=endless) for seed in seeds)
    return SimJob(content, prompt_tokens, answers)


def _answer(seed: int, limit: int, position: int, *, endless: bool) -> Answer:
    natural = max(0, natural_tokens(seed) - position)
    if endless or natural > limit:
        return Answer(seed, limit, "length", position)
    return Answer(seed, natural, "stop", position)


def _limit(body: JsonObject) -> int:
    """The body's output limit in tokens, 0 when it has none."""
    value = body.get("max_completion_tokens") or body.get("max_tokens")
    return 0 if value is None else _positive("max_tokens", value)


def _choices(body: JsonObject) -> int:
    prompt = body.get("prompt")
    # A list of integers is one prompt, in tokens.
    prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    return prompts * _positive("n", body.get("n") or 1)


def _positive(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1_000_000:
        raise _refusal(f"'{name}' must be a positive integer", "invalid_value")
    return value


def _refusal(message: str, code: str) -> EngineRefused:
    return EngineRefused(400, error_body(message, code))
