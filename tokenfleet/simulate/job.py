"""A simulated job: what it asks for, and what came of it."""

from dataclasses import dataclass, field

from protocol.messages import JobSpec
from protocol.prefix import CHARS_PER_TOKEN, PREFIX_CHARS
from protocol.states import Priority
from scheduler.policy.order import Targets
from scheduler.policy.view import JobView

GUESSED_OUTPUT_TOKENS = 256
"""What a dispatcher knows of the output: nothing, so the producer's guess."""


@dataclass(frozen=True, slots=True)
class Request:
    """One row of a trace.

    Attributes:
        at_ms: when it arrives.
        prompt_tokens: of its prompt, at least 1.
        output_tokens: that its answer will have, at least 1; no policy sees it.
        blocks: names of its prompt's leading blocks, each of `block_tokens` tokens and chained on those before.
        cancel_ms: when its client gives up; None for never.
    """

    id: str
    at_ms: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    block_tokens: int = 512
    priority: Priority = Priority.HIGH
    tenant: str = "t"
    cancel_ms: float | None = None

    @property
    def ref(self) -> str:
        """Its name in the shard."""
        return f"{self.tenant}:{self.id}"

    def prefix(self) -> tuple[str, ...]:
        """The producer's hashes: those of its offsets that whole blocks of the trace reach."""
        reach = len(self.blocks) * self.block_tokens
        ends = (chars // CHARS_PER_TOKEN for chars in PREFIX_CHARS)
        return tuple(f"{self.blocks[-(-end // self.block_tokens) - 1]}:{end}" for end in ends if end <= reach)

    def view(self) -> JobView:
        """As the dispatcher sees it."""
        spec = JobSpec.model_construct(
            model="m",
            endpoint="/v1/completions",
            stream=True,
            prompt_tokens=self.prompt_tokens,
            output_tokens=GUESSED_OUTPUT_TOKENS,
            prefix=self.prefix(),
        )
        return JobView(self.ref, self.ref, self.priority, spec, self.at_ms)


@dataclass(slots=True)
class Outcome:
    """What came of a request; times in ms, None while they have not come."""

    request: Request
    job: JobView
    worker: str = ""
    started_ms: float | None = None
    first_ms: float | None = None
    ended_ms: float | None = None
    tokens: int = 0
    attempt: int = 0
    cached_tokens: int = 0
    refused: bool = False
    cancelled: bool = False
    tries: int = 0
    predicted_ms: float = field(default=0.0)

    @property
    def ttft_ms(self) -> float | None:
        """From its arrival to its first token."""
        return None if self.first_ms is None else self.first_ms - self.request.at_ms

    @property
    def token_ms(self) -> float:
        """Per output token after the first."""
        if self.first_ms is None or self.ended_ms is None or self.tokens < 2:
            return 0.0
        return (self.ended_ms - self.first_ms) / (self.tokens - 1)

    def good(self, targets: Targets) -> bool:
        """Whether first token and time per token met their targets."""
        if self.ttft_ms is None or self.ended_ms is None:
            return False
        return self.ttft_ms <= targets.first_token_ms(self.job) and self.token_ms <= token_target_ms(self, targets)


def token_target_ms(outcome: Outcome, targets: Targets) -> float:
    """What a token of the stream may take: twice as much behind a long prompt."""
    long = outcome.request.prompt_tokens > targets.long_tokens
    return targets.token_ms * (2 if long else 1)
