"""Policy `cache-aware`: the best prefix match while the load is even, the least load while it is not.

Source: SGLang's router, `cache_aware`, with its thresholds: cache 0.5, balance 64 absolute and 1.5 relative.
"""

from collections.abc import Sequence

from scheduler.policy.policy import Fleet, Policy
from scheduler.policy.view import Chance, JobView
from scheduler.policy.worker import Worker

MATCH = 0.5
"""A match counts above this share of the prompt."""
UNEVEN_JOBS, UNEVEN_RATIO = 64, 1.5
"""The load is uneven when the fullest worker is above the emptiest by more than both."""


class CacheAware(Policy):
    """Load is `held`, in jobs."""

    def score(self, job: JobView, worker: Worker) -> float:
        """`held`, in jobs."""
        del job
        return worker.held

    def pick(self, job: JobView, candidates: Sequence[Worker], fleet: Fleet, rng: Chance) -> Worker:
        """`argmin held` if `max − min > 64` and `max > 1.5·min`; else `argmax match` if above 0.5; else `argmin held`.

        `match` is the share of the prompt that need not be computed; of equal matches the least loaded.
        """
        loads = [worker.held for worker in candidates]
        least, most = min(loads), max(loads)
        uneven = most - least > UNEVEN_JOBS and most > UNEVEN_RATIO * least
        if job.spec.prefix and not uneven:
            uncached = [worker.uncached_tokens(job) for worker in candidates]
            fewest = min(uncached)
            if job.spec.prompt_tokens - fewest > MATCH * job.spec.prompt_tokens:
                candidates = [worker for worker, tokens in zip(candidates, uncached, strict=True) if tokens == fewest]
        return super().pick(job, candidates, fleet, rng)
