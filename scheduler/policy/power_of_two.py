"""Policy `power-of-two`: of two workers drawn by chance, the one that holds fewer jobs.

Source: Mitzenmacher, "The power of two choices in randomized load balancing", 2001; SGLang's router has it too.
"""

from collections.abc import Sequence

from scheduler.policy.policy import Fleet, Policy
from scheduler.policy.view import Chance, JobView
from scheduler.policy.worker import Worker


class PowerOfTwo(Policy):
    """Looks at two only, so its cost does not grow with the fleet."""

    def pick(self, job: JobView, candidates: Sequence[Worker], fleet: Fleet, rng: Chance) -> Worker:
        """`argmin held` over two different candidates, each pair as likely; the first drawn between equals."""
        del job, fleet
        count = len(candidates)
        if count == 1:
            return candidates[0]
        first = rng.randrange(count)
        # One of the others: those from the first on move up by one.
        second = rng.randrange(count - 1)
        second += second >= first
        return min(candidates[first], candidates[second], key=lambda worker: worker.held)
