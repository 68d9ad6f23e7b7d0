"""Policy `lmetric`: new prompt tokens times batch size.

Source: LMetric ("Simple is better: multiplication may be all you need for LLM request scheduling"), its P-token × BS.
"""

from scheduler.policy.policy import Policy
from scheduler.policy.view import JobView
from scheduler.policy.worker import Worker


class LMetric(Policy):
    """A product needs no weights: prefix reuse lowers one factor, a short batch the other."""

    def score(self, job: JobView, worker: Worker) -> float:
        """`(pending + own uncached) · (held + 1)`: prompt tokens to compute with the job's own, jobs with the job."""
        return (worker.pending_tokens + worker.uncached_tokens(job)) * (worker.held + 1)
