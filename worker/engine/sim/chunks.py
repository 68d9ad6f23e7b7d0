"""The simulated engine's answers in OpenAI's shapes."""

import struct
from base64 import b64encode
from dataclasses import dataclass

from protocol.messages import Endpoint
from protocol.wire import JsonObject, dumps
from worker.engine.answers import usage
from worker.engine.base import EngineRequest
from worker.engine.sim.job import SimJob
from worker.engine.sim.text import unit_vector, word

DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """Writes the chunks of one request."""

    endpoint: Endpoint
    request_id: str
    model: str
    created_s: int

    def role(self, index: int) -> list[JsonObject]:
        """How a chat choice begins; a completion begins with its text."""
        return [self._chat(index, {"role": "assistant", "content": ""}, None)] if self._is_chat else []

    def token(self, index: int, text: str) -> JsonObject:
        """One piece of a choice's text."""
        return self._choice(index, text, None)

    def end(self, index: int, finish_reason: str) -> JsonObject:
        """How a choice ends."""
        return self._chat(index, {}, finish_reason) if self._is_chat else self._text(index, "", finish_reason)

    def usage(self, job: SimJob, cached_tokens: int) -> JsonObject:
        """The last chunk."""
        generated = sum(answer.tokens for answer in job.answers)
        return self._wrap([]) | {"usage": usage(job.prompt_tokens, generated, cached_tokens)}

    def whole(self, job: SimJob) -> JsonObject:
        """The full answer in one chunk, with its usage."""
        choices = [
            choice
            for index, answer in enumerate(job.answers)
            for text in ["".join(word(answer.seed, answer.position + n) for n in range(answer.tokens))]
            for choice in self._choice(index, text, answer.finish_reason)["choices"]
        ]
        for choice in choices if self._is_chat else ():
            choice["delta"]["role"] = "assistant"
        return self.usage(job, 0) | {"choices": choices}

    @property
    def _is_chat(self) -> bool:
        return self.endpoint == "/v1/chat/completions"

    def _choice(self, index: int, text: str, finish_reason: str | None) -> JsonObject:
        if self._is_chat:
            return self._chat(index, {"content": text}, finish_reason)
        return self._text(index, text, finish_reason)

    def _chat(self, index: int, delta: JsonObject, finish_reason: str | None) -> JsonObject:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._wrap([choice])

    def _text(self, index: int, text: str, finish_reason: str | None) -> JsonObject:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}
        return self._wrap([choice])

    def _wrap(self, choices: list[JsonObject]) -> JsonObject:
        return {
            "id": f"{'chatcmpl' if self._is_chat else 'cmpl'}-{self.request_id}",
            "object": "chat.completion.chunk" if self._is_chat else "text_completion",
            "created": self.created_s,
            "model": self.model,
            "choices": choices,
        }


def embeddings(request: EngineRequest, job: SimJob, model: str) -> JsonObject:
    """The full response to an embeddings request."""
    value = request.body["input"]
    inputs = value if isinstance(value, list) and not isinstance(value[0], int) else [value]
    wanted = request.body.get("dimensions")
    dimensions = wanted if isinstance(wanted, int) and 0 < wanted <= 8192 else DIMENSIONS
    vectors = [unit_vector(dumps(item), dimensions) for item in inputs]
    as_text = request.body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _base64(vector) if as_text else vector}
        for index, vector in enumerate(vectors)
    ]
    spent = {"prompt_tokens": job.prompt_tokens, "total_tokens": job.prompt_tokens}
    return {"object": "list", "data": data, "model": model, "usage": spent}


def _base64(vector: list[float]) -> str:
    """Little-endian 32-bit floats, as OpenAI encodes them."""
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
