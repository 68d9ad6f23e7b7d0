"""What goes into the step machine and what comes out of it."""

from dataclasses import dataclass, field

from worker.engine.sim.blocks import BlockHash


@dataclass(frozen=True, slots=True)
class Limits:
    """What one engine takes."""

    kv_tokens: int
    sequences: int = 1024
    step_tokens: int = 8192
    block_tokens: int = 16


@dataclass(frozen=True, slots=True)
class SimRequest:
    """One sequence; with `output_tokens` 0 it ends with its prefill, as an embedding does."""

    id: str
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[BlockHash, ...] = ()
    """Chained hashes of its leading full blocks; what lies past them is never shared."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did; all of it becomes true at `ends_ms`."""

    starts_ms: float
    duration_ms: float
    emitted: dict[str, int] = field(default_factory=dict)
    """Tokens by request."""
    finished: tuple[str, ...] = ()
    admitted: dict[str, int] = field(default_factory=dict)
    """Prompt tokens found in the prefix cache, by request that began or began again."""
    preempted: tuple[str, ...] = ()

    @property
    def ends_ms(self) -> float:
        """When its tokens are there."""
        return self.starts_ms + self.duration_ms
