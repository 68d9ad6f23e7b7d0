"""What a policy is, and the working copy of a worker that it weighs."""

from dataclasses import dataclass, field
from typing import Protocol, Self

from protocol.messages import JobSpec, LoadReport
from scheduler.policy.view import JobView, WorkerView


@dataclass(slots=True)
class Worker:
    """A worker as the round has left it so far: what was reported, what was assigned since, what this round added.

    Attributes:
        held: jobs that it holds.
        pending_tokens: prompt tokens that wait for their prefill.
        kv_tokens: KV held, and to be held by jobs that no report contains yet.
        alone: it was given a job that must run alone.
        prefixes: block hashes of the prompts that this round gave it.
    """

    id: str
    slots: int
    report: LoadReport
    held: int
    pending_tokens: int
    kv_tokens: int
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
        )

    def take(self, job: JobView) -> None:
        """Count a job that was given to it."""
        self.held += 1
        self.pending_tokens += self.uncached_tokens(job.spec)
        self.kv_tokens += job.tokens
        self.prefixes.update(job.spec.prefix)

    def uncached_tokens(self, spec: JobSpec) -> int:
        """Prompt tokens less the leading blocks that it shares with a prompt of this round.

        The rest behind the last full block counts as one block more, which is never shared.
        """
        if not self.prefixes or not spec.prefix:
            return spec.prompt_tokens
        shared = 0
        while shared < len(spec.prefix) and spec.prefix[shared] in self.prefixes:
            shared += 1
        return spec.prompt_tokens - spec.prompt_tokens * shared // (len(spec.prefix) + 1)


class Policy(Protocol):
    """How to choose among the workers that may take a job. Pure: same arguments, same answer."""

    def score(self, job: JobView, worker: Worker, now_ms: float) -> float:
        """How bad the worker is for the job; the lowest takes it, chance decides between equals."""
        ...

    def full(self, worker: Worker) -> bool:
        """Whether it takes nothing now, although it has a free slot."""
        ...
