"""Policy `least-work`: the worker with the least work in front of the job, in tokens."""

from scheduler.policy.policy import Policy, nearly_overflows
from scheduler.policy.view import JobView
from scheduler.policy.worker import Worker

STEPS = 16
"""How many decode steps the weighing looks ahead."""
KV_TOKENS_PER_TOKEN = 400
"""Attending to so many KV tokens takes as long as computing one token: b / κ = 0.0195 / 4.9e-5 ms, H100, 8B."""


class LeastWork(Policy):
    """Weighs reports and what was assigned since: fresh at any age of the reports."""

    def score(self, job: JobView, worker: Worker) -> float:
        """`(pending + 2·own + STEPS·(held + KV / 400)) / capacity`, in tokens per request that runs at once.

        An engine's step takes `a + b·tokens + κ·KV`; over `b` that is a number of tokens. Before the job's first
        token the engine computes the pending prompts and the job's own, less the leading blocks that its cache holds
        or that went there in this round; then each step computes a token for each of the `held` jobs and attends to
        all KV. Its own prompt counts twice, as it also stands before whoever comes next: so a group that shares a
        prefix stays together until its queue outweighs what sharing saves, and then an idle worker without the
        prefix takes over. `capacity` makes unequal workers comparable.
        """
        prefill = worker.pending_tokens + 2 * worker.uncached_tokens(job)
        streams = STEPS * (worker.held + worker.kv_tokens / KV_TOKENS_PER_TOKEN)
        return (prefill + streams) / max(1, worker.report.capacity)

    def full(self, worker: Worker) -> bool:
        """Whether its KV cache is about to overflow."""
        return nearly_overflows(worker)
