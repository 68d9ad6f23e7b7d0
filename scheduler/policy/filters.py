"""Which worker may take a job at all."""

from scheduler.policy.view import JobView, WorkerView
from scheduler.policy.worker import Worker

CROWDED = 0.9
"""From this share of its KV cache on an engine lets nobody in."""
STRIKES_ALONE = 2
"""From so many strikes on a job runs alone."""


def accepts(worker: WorkerView) -> bool:
    """Whether the worker takes jobs and has a free slot, and its engine hardly queues."""
    return worker.active and worker.held < worker.slots and not worker.solo and is_shallow(worker)


def is_shallow(worker: WorkerView) -> bool:
    """Whether at most an eighth of what the engine runs at once queues inside it: there nothing can overtake.

    What waits beside free places enters with the next step and is no queue. The report is old, `held` is not: jobs
    that have ended since have let others in.
    """
    report = worker.report
    if report.running < report.capacity and report.kv < CROWDED:
        return True
    return min(report.waiting, worker.held - report.running) <= report.capacity // 8


def serves(worker: WorkerView | Worker, model: str) -> bool:
    """Whether the worker has the model; an adapter may be loaded on a part of its pool only."""
    return not worker.models or model in worker.models


def fits(job: JobView, kv_total_tokens: int) -> bool:
    """Whether the prompt and output find room in an empty KV cache of that size; 0 means unknown."""
    return job.tokens <= kv_total_tokens or not kv_total_tokens


def must_run_alone(job: JobView) -> bool:
    """Whether the job is suspected of killing engines."""
    return job.strikes >= STRIKES_ALONE


def may_take(worker: Worker, job: JobView) -> bool:
    """Whether a worker with a free slot may take this job."""
    # `serves` and `must_run_alone`, written out: a round asks this for each job of each worker that it looks at.
    if (worker.models and job.spec.model not in worker.models) or (job.strikes >= STRIKES_ALONE and worker.held):
        return False
    return fits(job, worker.report.kv_total_tokens)


def stays_open(worker: Worker) -> bool:
    """Whether a worker may take one more after what the round gave it."""
    return worker.held < worker.slots and not worker.alone
