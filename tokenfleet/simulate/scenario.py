"""What is simulated: requests, workers, a policy, and how the news travel."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from scheduler.policy.order import Targets
from scheduler.policy.policy import Policy
from scheduler.policy.window import Window
from tokenfleet.simulate.engine import WorkerSpec
from tokenfleet.simulate.job import GUESSED_OUTPUT_TOKENS, Request


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated.

    Attributes:
        report_ms: how often each worker publishes its load.
        late_ms: how old a report is when the dispatcher has it.
        lease_ms: how long after its death a worker's jobs come back.
        until_ms: when to stop, though some requests have not ended.
        online_only: stop once the online requests have ended.
    """

    requests: Sequence[Request]
    workers: Sequence[WorkerSpec]
    policy: Policy
    targets: Targets = field(default_factory=Targets)
    window: Window = field(default_factory=Window)
    report_ms: float = 50.0
    late_ms: float = 0.0
    lease_ms: float = 10_000.0
    until_ms: float = math.inf
    online_only: bool = False
    seed: int = 0


def too_large(requests: Iterable[Request], workers: Iterable[WorkerSpec]) -> int:
    """The tokens of the largest request, if some worker's KV cache could not hold it; else 0."""
    largest = max((one.prompt_tokens + max(one.output_tokens, GUESSED_OUTPUT_TOKENS) for one in requests), default=0)
    return largest if largest > min(spec.kv_tokens for spec in workers) else 0
