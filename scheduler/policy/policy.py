"""What a policy decides, and what it sees of the fleet while a round goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.policy.order import Targets
from scheduler.policy.view import ONLINE_ONLY, Chance, JobView, Lately
from scheduler.policy.worker import Worker

KV_FULL = 0.9


@dataclass(slots=True)
class Fleet:
    """The round's surroundings.

    Attributes:
        workers: all that take jobs, full ones too.
        targets: what jobs are meant to meet.
        lately: what kinds of jobs there were.
        turn: how many jobs the dispatcher has started so far, in this round too.
    """

    now_ms: float
    workers: Sequence[Worker]
    targets: Targets
    lately: Lately = ONLINE_ONLY
    turn: int = 0

    def waited_ms(self, job: JobView) -> float:
        """Since it was submitted."""
        return self.now_ms - job.submitted_ms


class Policy:
    """How to choose among the workers that may take a job. Pure: same arguments, same answers.

    A policy need only score, or pick; the rest is for those that hold jobs back, put them in an order, or refuse them.

    Attributes:
        looks_past_full: whether the best worker may be one that takes nothing now; then the job waits for it unless it
            `settles`.
    """

    looks_past_full = False

    def score(self, job: JobView, worker: Worker) -> float:
        """How bad the worker is for the job; the lowest takes it, chance decides between equals."""
        raise NotImplementedError

    def pick(self, job: JobView, candidates: Sequence[Worker], fleet: Fleet, rng: Chance) -> Worker:
        """The worker that takes the job, of at least one that may: the lowest score, by chance between equals."""
        del fleet
        if len(candidates) == 1:
            return candidates[0]
        scores = [self.score(job, worker) for worker in candidates]
        lowest = min(scores)
        if scores.count(lowest) == 1:
            return candidates[scores.index(lowest)]
        best = [worker for worker, score in zip(candidates, scores, strict=True) if score == lowest]
        return best[rng.randrange(len(best))]

    def full(self, worker: Worker) -> bool:
        """Whether it takes nothing now, although it has a free slot."""
        del worker
        return False

    def arrange(self, lane: Sequence[JobView], fleet: Fleet) -> Sequence[JobView]:
        """The order in which the lane's jobs are tried; the lane's own by default."""
        del fleet
        return lane

    def holds(self, job: JobView, worker: Worker, fleet: Fleet) -> bool:
        """Whether the job should rather wait than go to this worker now."""
        del job, worker, fleet
        return False

    def holds_late(self, job: JobView, worker: Worker, fleet: Fleet) -> bool:
        """Whether an online job that is past help should leave this worker to those that are not."""
        del job, worker, fleet
        return False

    def settles(self, job: JobView, fleet: Fleet) -> bool:
        """Whether the job takes another worker than the best one when that one is full or held back from."""
        del job, fleet
        return True

    def hopeless_ms(self, job: JobView, able: Sequence[Worker], fleet: Fleet) -> float | None:
        """How long the job would wait for its first token, when that is too long to be of use; None otherwise."""
        del job, able, fleet
        return None

    def look_again_ms(self, job: JobView, fleet: Fleet) -> float | None:
        """When a job that is held back may be seen otherwise, though nothing happens; None for never."""
        del job, fleet
        return None


def nearly_overflows(worker: Worker) -> bool:
    """Whether its KV cache is about to overflow, which throws running jobs out.

    What an empty worker shows is cache that it gives up.
    """
    total = worker.report.kv_total_tokens
    return 0 < KV_FULL * total <= worker.kv_tokens and worker.held > 0
