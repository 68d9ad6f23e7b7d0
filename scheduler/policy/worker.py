"""The working copy of a worker that a round weighs: what was reported, what was assigned since, what the round adds."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Self

from protocol.messages import JobSpec, LoadReport
from protocol.prefix import shared_tokens
from scheduler.policy.view import REFERENCE, STEP_TOKENS, JobView, WorkerView

TRUSTED_MS = 2_000.0
"""A worker that has been silent for longer is not taken to work on: it may be dead, and would look ever emptier."""
CALM = 0.9
"""The share of a target per token that a predicted step may take."""


@dataclass(slots=True, eq=False)
class Worker:
    """A worker as the round has left it so far; one is equal only to itself.

    Attributes:
        held: jobs that it holds.
        streams: those of them that decode, by estimate.
        pending_tokens: prompt tokens that wait for their prefill, less what the engine must have computed since.
        kv_tokens: KV held, and to be held by jobs that no report contains yet.
        base_ms: how long a step takes that computes no prompt: all streams decode.
        models: the names that it serves; empty for all.
        cached: block hashes that its engine's cache held when it last said so.
        sent: those that went to it since.
        alone: it was given a job that must run alone.
        prefixes: block hashes of the prompts that this round gave it.
    """

    id: str
    slots: int
    report: LoadReport
    speed: float
    held: int
    streams: int
    pending_tokens: int
    kv_tokens: int
    base_ms: float
    models: frozenset[str]
    cached: frozenset[str]
    sent: Container[str]
    alone: bool = False
    prefixes: set[str] = field(default_factory=set)
    _room: int = field(init=False)
    _residual_ms: float = field(init=False)
    _asked: JobView | None = field(init=False, default=None)
    _uncached: int = field(init=False, default=0)
    _predicted_ms: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        # Prompt tokens of one step: the budget less a token for each stream.
        self._room = max(1, (self.report.step_tokens or STEP_TOKENS) - self.streams)
        pending = min(self.pending_tokens, self._room)
        self._residual_ms = (self.base_ms + REFERENCE.token_ms * pending) / 2 if self.held else 0.0

    @classmethod
    def of(cls, view: WorkerView, now_ms: float) -> Self:
        """The worker at the round's beginning."""
        report, unseen = view.report, view.unseen
        kv_tokens = report.kv_used_tokens + unseen.kv_tokens
        before, fresh = report.pending_prefill_tokens + unseen.prompt_tokens, report.prefilling + unseen.jobs
        pending, waiting = 0, 0
        if before:
            pending = _left(view, max(0, view.held - fresh), kv_tokens, now_ms)
            # Of the jobs without a first token so many are taken to wait as of their tokens are left.
            waiting = -(-fresh * pending // before)
        streams = max(0, view.held - waiting)
        base_ms = _base_ms(streams, kv_tokens)
        return cls(
            *(view.id, view.slots, report, view.speed, view.held, streams, pending, kv_tokens, base_ms),
            *(view.models, view.prefixes, view.sent),
        )

    def take(self, job: JobView) -> None:
        """Count a job that was given to it."""
        self.held += 1
        self.pending_tokens += self.uncached_tokens(job)
        self._asked = None
        self.kv_tokens += job.tokens
        self.prefixes.update(job.spec.prefix)

    def uncached_tokens(self, job: JobView) -> int:
        """Prompt tokens less the leading blocks that its engine has cached or that a prompt of this round brings.

        In proportion, so that one common first block weighs what it saves and no more.
        """
        self._ask(job)
        return self._uncached

    def first_token_ms(self, job: JobView) -> float:
        """How long the job's first token takes from now on: the prompts before it, then its own, step by step."""
        self._ask(job)
        return self._predicted_ms

    def _ask(self, job: JobView) -> None:
        """Work it out once for a job: a round asks several times."""
        if self._asked is job:
            return
        self._asked = job
        own = self._uncached = self._count_uncached(job.spec)
        tokens = self.pending_tokens + own
        attention = REFERENCE.attention_ms * own * (job.spec.prompt_tokens - own / 2)
        steps = -(-tokens // self._room)
        # A step is under way: on average half of it is left.
        residual = self._residual_ms
        self._predicted_ms = (residual + REFERENCE.token_ms * tokens + attention + steps * self.base_ms) * self.speed

    def _count_uncached(self, spec: JobSpec) -> int:
        if not spec.prefix:
            return spec.prompt_tokens
        shared = 0
        for block in spec.prefix:
            if block not in self.cached and block not in self.prefixes and block not in self.sent:
                break
            shared += 1
        return spec.prompt_tokens - shared_tokens(spec.prompt_tokens, shared) if shared else spec.prompt_tokens

    def step_ms(self, new_tokens: int) -> float:
        """How long the next step takes: all pending prompt tokens and `new_tokens`, as far as a step computes."""
        tokens = min(self.pending_tokens + new_tokens, self._room)
        return (self.base_ms + REFERENCE.token_ms * tokens) * self.speed

    def calm_ms(self, token_ms: float) -> float:
        """What its steps should stay below for streams with this target; one that it could never meet is let go.

        Three times a lone stream's step, as a first token may take three times its lone prefill.
        """
        return CALM * max(token_ms, 3 * REFERENCE.base_ms * self.speed)


def _base_ms(streams: int, kv_tokens: int) -> float:
    return REFERENCE.base_ms + REFERENCE.token_ms * streams + REFERENCE.decode_kv_ms * kv_tokens


def _left(view: WorkerView, streams: int, kv_tokens: int, now_ms: float) -> int:
    """Prompt tokens that are pending now: the report's and each arrival's, less what the time was enough for."""
    room = max(1, (view.report.step_tokens or STEP_TOKENS) - streams)
    token_ms = (REFERENCE.token_ms + _base_ms(streams, kv_tokens) / room) * view.speed
    left, at_ms = float(view.report.pending_prefill_tokens), view.reported_ms
    now_ms = min(now_ms, at_ms + TRUSTED_MS)
    for arrived_ms, tokens in view.unseen.arrivals:
        if at_ms < arrived_ms < now_ms:
            left, at_ms = max(0.0, left - (arrived_ms - at_ms) / token_ms), arrived_ms
        left += tokens
    return int(max(0.0, left - (now_ms - at_ms) / token_ms))
