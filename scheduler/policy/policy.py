"""What a policy is, and the working copy of a worker that it weighs."""

from dataclasses import dataclass, field
from typing import Protocol, Self

from protocol.messages import JobSpec, LoadReport
from scheduler.policy.view import JobView, WorkerView

BLOCK_TOKENS = 256
"""A block that prefix hashes count has 1,024 characters, which is so many tokens of English; of others more."""


@dataclass(slots=True)
class Worker:
    """A worker as the round has left it so far: what was reported, what was assigned since, what this round added.

    Attributes:
        held: jobs that it holds.
        pending_tokens: prompt tokens that wait for their prefill.
        kv_tokens: KV held, and to be held by jobs that no report contains yet.
        models: the names that it serves; empty for all.
        cached: block hashes that its engine's cache held when it last said so.
        alone: it was given a job that must run alone.
        prefixes: block hashes of the prompts that this round gave it.
    """

    id: str
    slots: int
    report: LoadReport
    held: int
    pending_tokens: int
    kv_tokens: int
    models: frozenset[str]
    cached: frozenset[str]
    alone: bool = False
    prefixes: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, view: WorkerView) -> Self:
        """The worker at the round's beginning."""
        report, unseen = view.report, view.unseen
        return cls(
            id=view.id,
            slots=view.slots,
            report=report,
            held=view.held,
            pending_tokens=report.pending_prefill_tokens + unseen.prompt_tokens,
            kv_tokens=report.kv_used_tokens + unseen.kv_tokens,
            models=view.models,
            cached=view.prefixes,
        )

    def take(self, job: JobView) -> None:
        """Count a job that was given to it."""
        self.held += 1
        self.pending_tokens += self.uncached_tokens(job.spec)
        self.kv_tokens += job.tokens
        self.prefixes.update(job.spec.prefix)

    def uncached_tokens(self, spec: JobSpec) -> int:
        """Prompt tokens less the leading blocks that its engine has cached or that a prompt of this round brings.

        In proportion: the rest behind the last full block counts as one block more, which is never shared. Only a
        prompt's first blocks have hashes, so a block counts `BLOCK_TOKENS` at most.
        """
        shared = 0
        for block in spec.prefix:
            if block not in self.cached and block not in self.prefixes:
                break
            shared += 1
        return spec.prompt_tokens - min(spec.prompt_tokens * shared // (len(spec.prefix) + 1), BLOCK_TOKENS * shared)


class Policy(Protocol):
    """How to choose among the workers that may take a job. Pure: same arguments, same answer."""

    def score(self, job: JobView, worker: Worker, now_ms: float) -> float:
        """How bad the worker is for the job; the lowest takes it, chance decides between equals."""
        ...

    def full(self, worker: Worker) -> bool:
        """Whether it takes nothing now, although it has a free slot."""
        ...
