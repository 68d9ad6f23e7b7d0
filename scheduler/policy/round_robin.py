"""Policy `round-robin`: the workers in turns. The plainest there is; what a proxy does when told nothing."""

from collections.abc import Sequence

from scheduler.policy.policy import Fleet, Policy
from scheduler.policy.view import Chance, JobView
from scheduler.policy.worker import Worker


class RoundRobin(Policy):
    """Looks at nothing but whether a worker may take the job."""

    def pick(self, job: JobView, candidates: Sequence[Worker], fleet: Fleet, rng: Chance) -> Worker:
        """Start number `turn` goes to worker `turn mod n` of the `n` active ones, or the next that may take it."""
        del job, rng
        places = {worker.id: place for place, worker in enumerate(fleet.workers)}
        count = len(places)
        return min(candidates, key=lambda worker: (places[worker.id] - fleet.turn) % count)
