"""Requests as a worker hands them to an engine, and readers of what comes back."""

from itertools import count
from typing import Any

from protocol.messages import Endpoint
from protocol.states import Priority
from protocol.wire import JsonObject
from worker.engine.base import Engine, EngineRequest

_numbers = count(1)


def attempt(endpoint: Endpoint, body: JsonObject, prompt_tokens: int = 0) -> EngineRequest:
    return EngineRequest(f"r{next(_numbers)}", endpoint, body, Priority.HIGH, prompt_tokens)


def chat(content: str, prompt_tokens: int = 0, **options: Any) -> EngineRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **options}
    return attempt("/v1/chat/completions", body, prompt_tokens)


def completion(prompt: Any, **options: Any) -> EngineRequest:
    return attempt("/v1/completions", {"model": "m", "prompt": prompt, **options})


def embedding(text: Any, **options: Any) -> EngineRequest:
    return attempt("/v1/embeddings", {"model": "m", "input": text, **options})


async def collect(engine: Engine, wanted: EngineRequest) -> list[JsonObject]:
    return [chunk async for chunk in engine.generate(wanted)]
