"""What a decision sees: immutable, built by the dispatcher or by a simulator. Times are ms of one clock."""

import math
from collections.abc import Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from protocol.cost_model import PROFILES, Profile
from protocol.messages import JobSpec, LoadReport
from protocol.states import Priority

HEADS = 256
"""How many jobs of each lane a decision sees at most; a lane that shows as many may hide more."""
REFERENCE: Profile = PROFILES["h100-8b"]
"""The engine that predictions are made for; each worker's speed is learned against it."""
STEP_TOKENS = 8192
"""What an engine computes in one step when it does not tell; vLLM's default on large GPUs."""
FLOW_MS = 1_000.0
"""Within so long a prompt fades from a worker's `Flow` to 1/e."""
PREFILL_TOKEN_MS = 0.1
DECODE_TOKEN_MS = 20.0
"""How long a token takes on a busy engine, order of magnitude: 8B models on one GPU, `a + κ·KV` of a full batch."""


class Chance(Protocol):
    """The part of `random.Random` that decisions use."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to `stop` - 1."""
        ...


@dataclass(frozen=True, slots=True)
class JobView:
    """A queued job.

    Attributes:
        ref: `tenant:own id`, its name in the shard.
        member: its entry in the lane.
        submitted_ms: since when it waits: its submission, or the end of its delay.
        deadline_ms: when it expires; 0 for never.
        strikes: attempts that ended with their engine or worker dead.
        begun: it ran before, and came back.
        start_by_ms: the deadline less the predicted run time; infinite without a deadline.
        tokens: what it holds of the KV cache at its end: prompt and output.
        lone_ms: how long its prefill takes on an idle reference engine with an empty cache.
        prefill_ms: the part of that which its tokens take.
    """

    ref: str
    member: str
    priority: Priority
    spec: JobSpec
    submitted_ms: float
    deadline_ms: float = 0
    strikes: int = 0
    begun: bool = False
    start_by_ms: float = field(init=False)
    tokens: int = field(init=False)
    lone_ms: float = field(init=False)
    prefill_ms: float = field(init=False)

    def __post_init__(self) -> None:
        # All are asked for in each round that the job waits through, so they are worked out once.
        run_ms = self.spec.prompt_tokens * PREFILL_TOKEN_MS + self.spec.output_tokens * DECODE_TOKEN_MS
        start_by_ms = self.deadline_ms - run_ms if self.deadline_ms else float("inf")
        object.__setattr__(self, "start_by_ms", start_by_ms)
        object.__setattr__(self, "tokens", self.spec.cost_tokens)
        object.__setattr__(self, "lone_ms", lone_prefill_ms(self.spec.prompt_tokens))
        object.__setattr__(self, "prefill_ms", REFERENCE.token_ms * self.spec.prompt_tokens)


class Arrival(NamedTuple):
    """A prompt that went to a worker.

    Attributes:
        tokens: what its engine must compute of it: less what was in its cache.
        work_ms: how much longer that makes the reference engine's steps.
    """

    at_ms: float
    tokens: int
    work_ms: float


@dataclass(frozen=True, slots=True)
class Flow:
    """The prompts that went to a worker lately; older ones fade.

    Attributes:
        work_ms: of all of them, as faded at `at_ms`.
    """

    work_ms: float = 0.0
    at_ms: float = 0.0

    def plus(self, arrival: Arrival) -> "Flow":
        """With one more."""
        return Flow(self.share(arrival.at_ms) * FLOW_MS + arrival.work_ms, arrival.at_ms)

    def share(self, now_ms: float) -> float:
        """How much of the reference engine's time they take."""
        # A clock that went back is no reason to remember for longer.
        return self.work_ms * math.exp(-abs(now_ms - self.at_ms) / FLOW_MS) / FLOW_MS


@dataclass(frozen=True, slots=True)
class Unseen:
    """What was assigned to a worker and is not yet contained in its report."""

    jobs: int = 0
    prompt_tokens: int = 0
    """What its engine must compute of the prompts: less what was in its cache."""
    kv_tokens: int = 0
    """Prompt and output: what the jobs will hold."""
    arrivals: tuple[Arrival, ...] = ()
    """Oldest first."""


NOTHING_UNSEEN, NO_FLOW = Unseen(), Flow()


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker that is leased.

    Attributes:
        active: it takes jobs; not starting, standing by, unhealthy, draining or lost, nor silent beside others, nor
            pausing because its engine refuses.
        slots: how many jobs it takes at most.
        held: how many it holds now by Redis's count, never stale.
        solo: it runs a job that must run alone.
        report: what it last published about itself, at `reported_ms`.
        unseen: what was assigned since.
        flow: what was assigned within the last seconds, whether the report contains it or not.
        speed: how long its engine takes, over the prediction for the reference engine; learned, 1 at first.
        models: the names that it serves; empty when it serves whatever its pool does.
        prefixes: hashes of the prompt blocks that its engine had in its cache when it last said so.
        sent: hashes of prompts that went to it since.
    """

    id: str
    label: str
    active: bool
    slots: int
    held: int
    solo: bool = False
    report: LoadReport = LoadReport()
    reported_ms: float = 0
    unseen: Unseen = NOTHING_UNSEEN
    flow: Flow = NO_FLOW
    models: frozenset[str] = frozenset()
    prefixes: frozenset[str] = frozenset()
    sent: Container[str] = ()
    speed: float = 1.0


class Lately(NamedTuple):
    """What kinds of jobs there were.

    Attributes:
        online: online jobs came within the last minute: offline work leaves room for the next.
        offline: offline work was started within the last seconds: the workers are as full as it may make them.
    """

    online: bool = True
    offline: bool = False


ONLINE_ONLY = Lately()


@dataclass(frozen=True, slots=True)
class FleetView:
    """One shard at one moment.

    Attributes:
        lanes: for each lane that holds jobs its first ones, at most `HEADS`, in the lane's order.
        workers: those that are leased.
        turn: how many jobs this dispatcher has started so far (`Ledger.started`).
        lately: what kinds of jobs there were.
        holders: the workers that hold a prompt block, by its hash; None when only the workers' own sets tell.
    """

    lanes: tuple[tuple[JobView, ...], ...]
    workers: tuple[WorkerView, ...]
    turn: int = 0
    lately: Lately = ONLINE_ONLY
    holders: Mapping[str, AbstractSet[str]] | None = None


def work_ms(new_tokens: float, prompt_tokens: float) -> float:
    """How much longer the last `new_tokens` of a prompt make the reference engine's steps: b·n + c·n·(prompt − n/2)."""
    pairs = new_tokens * (prompt_tokens - new_tokens / 2)
    return REFERENCE.token_ms * new_tokens + REFERENCE.attention_ms * pairs


def lone_prefill_ms(tokens: float) -> float:
    """How long the reference engine computes a prompt alone, step by step."""
    return math.ceil(tokens / STEP_TOKENS) * REFERENCE.base_ms + work_ms(tokens, tokens)
