"""What a worker's settings say about its engine."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of all engines; each reads its own, and 0 or empty means the engine's own default."""

    slots: int = 0
    """Requests at once."""
    context_tokens: int = 0
    """The longest prompt plus output of one request."""
    kv_tokens: int = 0
    """What the KV cache holds."""
    model: str = ""
    """The name that the engine serves the model under."""
    attach: str = ""
    """openai, vllm: where a running server listens, with or without `/v1`."""
    api_key: str = field(default="", repr=False)
    """openai, vllm: sent as a bearer token."""
    stall_s: float = 120.0
    """All that serve over HTTP: a stream that is silent for so long is given up."""
    start_timeout_s: float = 120.0
    """openai, llama: how long the server may take to come up."""
    start_silence_s: float = 600.0
    """vllm: a start without a line of output for so long is given up; one that gets on may take its time."""
    arguments: tuple[str, ...] = ()
    """vllm: flags for `vllm serve`."""
    python: Path | None = None
    """vllm: the interpreter that has it; this one when there is none."""
    model_path: Path | None = None
    """llama: a GGUF file; the packaged small model when there is none."""
    port: int = 0
    """llama: where its server listens; 0 takes a free port."""
    threads: int = 1
    """llama: how many compute."""
    profile: str = "h100-8b"
    """sim: which hardware's step times."""
    speed: float = 1.0
    """sim: how much faster than that hardware."""
