"""Policy `least-requests`: the worker that holds the fewest jobs.

Source: the usual load balancers' `least_conn`, vLLM's production stack, and AIBrix's `least-request`.
"""

from scheduler.policy.policy import Policy
from scheduler.policy.view import JobView
from scheduler.policy.worker import Worker


class LeastRequests(Policy):
    """By Redis's own count, which is never old."""

    def score(self, job: JobView, worker: Worker) -> float:
        """`held`, in jobs: those that run, and those that wait in its inbox or engine."""
        del job
        return worker.held
