"""The working copy of a worker that a round weighs: what was reported, what was assigned since, what the round adds."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Self

from protocol.messages import JobSpec, LoadReport
from protocol.prefix import shared_tokens
from scheduler.policy.backlog import Backlog, backlog
from scheduler.policy.view import FLOW_MS, REFERENCE, STEP_TOKENS, JobView, WorkerView, work_ms

CALM = 0.9
"""The share of a target per token that a predicted step may take."""
MOST_SHARE = 0.95
"""More of its time than this no engine spends on prompts."""


@dataclass(slots=True, eq=False)
class Worker:
    """A worker as the round has left it so far; one is equal only to itself.

    Attributes:
        held: jobs that it holds.
        streams: those of them that decode, by estimate.
        pending_tokens: prompt tokens that wait for their prefill, less what the engine must have computed since.
        queued_tokens: of those, what the step under way does not compute.
        queued_ms: how much longer these make the reference engine's steps.
        ends_ms: how long the step under way still takes.
        kv_tokens: KV held, and to be held by jobs that no report contains yet.
        base_ms: how long a step takes that computes no prompt: all streams decode.
        share: of the reference engine's time that the prompts which came lately take.
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
    queued_tokens: int
    queued_ms: float
    ends_ms: float
    kv_tokens: int
    base_ms: float
    share: float
    models: frozenset[str]
    cached: frozenset[str]
    sent: Container[str]
    alone: bool = False
    prefixes: set[str] = field(default_factory=set)
    _room: int = field(init=False)
    _asked: JobView | None = field(init=False, default=None)
    _uncached: int = field(init=False, default=0)
    _work_ms: float = field(init=False, default=0.0)
    _predicted_ms: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._room = _room(self.report, self.streams)

    @classmethod
    def of(cls, view: WorkerView, now_ms: float) -> Self:
        """The worker at the round's beginning."""
        report, unseen = view.report, view.unseen
        kv_tokens = report.kv_used_tokens + unseen.kv_tokens
        before, fresh = report.pending_prefill_tokens + unseen.prompt_tokens, report.prefilling + unseen.jobs
        found, streams = None, view.held
        if before:
            streams = max(0, view.held - fresh)
            found = backlog(view, _base_ms(streams, kv_tokens), _room(report, streams), now_ms, streams=streams > 0)
            # Of the jobs without a first token so many are taken to wait as of their tokens are left.
            waiting = -(-fresh * found.pending_tokens // before) if found else 0
            streams = max(0, view.held - waiting)
        base_ms = _base_ms(streams, kv_tokens)
        # A step that only decodes began some time ago: on average half of it is left.
        found = found or Backlog(ends_ms=base_ms * view.speed / 2 if view.held else 0.0)
        return cls(
            *(view.id, view.slots, report, view.speed, view.held, streams),
            *(found.pending_tokens, found.queued_tokens, found.queued_ms, found.ends_ms),
            *(kv_tokens, base_ms, view.flow.share(now_ms)),
            *(view.models, view.prefixes, view.sent),
        )

    def take(self, job: JobView) -> None:
        """Count a job that was given to it."""
        own = self.uncached_tokens(job)
        self.held += 1
        self.pending_tokens += own
        self.queued_tokens += own
        self.queued_ms += self._work_ms
        self.share += self._work_ms / FLOW_MS
        self._asked = None
        self.kv_tokens += job.tokens
        self.prefixes.update(job.spec.prefix)

    def uncached_tokens(self, job: JobView) -> int:
        """Prompt tokens less the leading blocks that its engine has cached or that a prompt of this round brings.

        In proportion, so that one common first block weighs what it saves and no more.
        """
        self._ask(job)
        return self._uncached

    def work_ms(self, job: JobView) -> float:
        """How much longer computing those makes the reference engine's steps."""
        self._ask(job)
        return self._work_ms

    def first_token_ms(self, job: JobView) -> float:
        """How long the job's first token takes from now on: the step under way, the prompts before it, then its own."""
        self._ask(job)
        return self._predicted_ms

    def _ask(self, job: JobView) -> None:
        """Work it out once for a job: a round asks several times."""
        if self._asked is job:
            return
        self._asked = job
        own = self._uncached = self._count_uncached(job.spec)
        self._work_ms = work_ms(own, job.spec.prompt_tokens)
        steps = -(-(self.queued_tokens + own) // self._room)
        self._predicted_ms = self.ends_ms + (self.queued_ms + self._work_ms + steps * self.base_ms) * self.speed

    def _count_uncached(self, spec: JobSpec) -> int:
        if not spec.prefix:
            return spec.prompt_tokens
        shared = 0
        for block in spec.prefix:
            if block not in self.cached and block not in self.prefixes and block not in self.sent:
                break
            shared += 1
        return spec.prompt_tokens - shared_tokens(spec.prompt_tokens, shared) if shared else spec.prompt_tokens

    def step_ms(self, job: JobView | None = None) -> float:
        """How long the next step takes: all queued prompts and the job's, as far as a step computes them."""
        tokens, work = self.queued_tokens, self.queued_ms
        if job:
            tokens, work = tokens + self.uncached_tokens(job), work + self.work_ms(job)
        return (self.base_ms + min(1.0, self._room / max(1, tokens)) * work) * self.speed

    @property
    def token_ms(self) -> float:
        """How long a token of its streams takes, while as many prompts come as lately.

        In a second there is time for (1 − share) / base steps, beside the prompts.
        """
        return self.base_ms * self.speed / (1 - min(MOST_SHARE, self.share * self.speed))

    def calm_ms(self, token_ms: float) -> float:
        """What its next step should stay below, for streams with this target."""
        return CALM * self.bearable_ms(token_ms)

    def bearable_ms(self, token_ms: float) -> float:
        """How long its streams' tokens may take with this target; one that it could never meet is let go.

        Three times a lone stream's step, as a first token may take three times its lone prefill.
        """
        return max(token_ms, 3 * REFERENCE.base_ms * self.speed)


def _base_ms(streams: int, kv_tokens: int) -> float:
    return REFERENCE.base_ms + REFERENCE.token_ms * streams + REFERENCE.decode_kv_ms * kv_tokens


def _room(report: LoadReport, streams: int) -> int:
    """Prompt tokens of one step: its budget less a token for each stream."""
    return max(1, (report.step_tokens or STEP_TOKENS) - streams)
