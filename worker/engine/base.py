"""What a worker asks of an engine, and how an engine fails."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from protocol.messages import Endpoint
from protocol.states import Priority
from protocol.wire import JsonObject

PREFIXES_KEPT = 4096
"""So many prefix hashes of one engine are told to the dispatcher: the ones that were used last."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One attempt of a job, for an engine."""

    request_id: str
    """Unique for each attempt: engines refuse or confuse a repeated id."""
    endpoint: Endpoint
    body: JsonObject
    priority: Priority
    prompt_tokens: int
    """Estimated."""
    tenant: str = ""
    """Whose it is: engines share a prefix cache only within one tenant."""
    prefix: tuple[str, ...] = ()
    """Chained hashes of the prompt's leading blocks; see `JobSpec.prefix`."""
    trace: str = ""
    """W3C's `traceparent` for an engine that traces too; empty for none."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an engine can hold; 0 where it does not tell."""

    slots: int
    context_tokens: int = 0
    kv_tokens: int = 0
    block_tokens: int = 0
    """Tokens of one block of the KV cache."""
    models: tuple[str, ...] = ()
    """The names that it serves, adapters too; empty when it does not tell."""
    step_tokens: int = 0
    """What it computes in one step at most."""
    stream_tokens: int = 1
    """Tokens of one chunk of a stream, after the first chunk, which has one."""
    continues_chats: bool = False
    """Whether it is known to go on with the assistant's message that a chat ends with, by `continue_final_message`."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What an engine does at the moment; tokens, requests, and a share for the memory."""

    running: int = 0
    waiting: int = 0
    kv_used_tokens: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    preemptions: int = 0
    """Counted since the engine came up, as the three before; 0 where it does not tell."""
    resident_bytes: int = 0
    """Resident memory of the engine's processes; stands for device memory where there is no device."""


class EngineError(Exception):
    """Base of all ways in which an attempt can fail on an engine. The text never holds the prompt."""


class EngineRefused(EngineError):
    """The engine answered 4xx: the request is at fault, another attempt would be refused too."""

    def __init__(self, status_code: int, body: JsonObject) -> None:
        """Keep the engine's own answer for the user."""
        super().__init__(f"engine answered {status_code}")
        self.status_code = status_code
        self.body = body


class EngineBusy(EngineError):
    """The engine answered 429 or 503: try again later, nobody is at fault."""

    def __init__(self, retry_after_s: float) -> None:
        """Say how long to wait."""
        super().__init__(f"engine is busy, retry after {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class EngineFault(EngineError):
    """The engine answered 5xx, garbage, or a stream that broke off: worth a bounded number of retries."""


class EngineDead(EngineError):
    """The engine's process died under the request: a strike for the job."""

    def __init__(self, message: str, *, reached: bool = True) -> None:
        """Say what was seen; `reached` is False when the engine never got the request: then it is no strike."""
        super().__init__(message)
        self.reached = reached


class SleepRefused(EngineError):
    """The engine can't give its memory back and keep its process."""


class Engine(Protocol):
    """One engine. Not shared between workers; all calls come from one event loop."""

    async def start(self) -> Capacity:
        """Bring the engine up (again after a death) and return what it can hold.

        Raises:
            EngineDead: it did not come up.
            SetupError: something must be installed or configured first.
        """
        ...

    def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        """Run one request.

        Chat and completions yield OpenAI chunk objects as they come, whatever the body's `stream` says; the
        last one carries `usage`. Embeddings yield the full response object alone. Closing the generator
        aborts the request and frees its slot. A choice of a chunk may bring its tokens as `token_ids`, and the
        first chunk the prompt's as `prompt_token_ids`: who did not ask for them does not get to see them.

        Raises:
            EngineError: one of its subclasses.
        """
        ...

    async def tokenize(self, request: EngineRequest) -> list[int]:
        """The tokens of the request's prompt. Never raises: none where the engine does not tell."""
        ...

    async def detokenize(self, request: EngineRequest, ids: Sequence[int]) -> str:
        """The text of tokens of the request's model. Never raises: empty where the engine does not tell."""
        ...

    async def load(self) -> EngineLoad:
        """What it does at the moment. Never raises for an engine that is down: answers zeros."""
        ...

    def prefixes(self) -> frozenset[str]:
        """The hashes of `EngineRequest.prefix` whose blocks the KV cache holds, at most `PREFIXES_KEPT`.

        The same object for as long as nothing changed; empty where the engine does not tell.
        """
        ...

    async def sleep(self) -> None:
        """Give the device's memory back; nothing runs. The KV cache is gone.

        Raises:
            SleepRefused: it can't, and why.
            EngineDead: it did not answer.
        """
        ...

    async def wake(self) -> None:
        """Take requests again after `sleep`; raises as it."""
        ...

    async def wait_dead(self) -> str:
        """Return the reason once the running engine is down."""
        ...

    async def close(self) -> None:
        """Stop what `start` started; idempotent."""
        ...
