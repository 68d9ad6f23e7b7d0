"""Policy `load-score`: the worker with the lowest published load score, by reports alone."""

from protocol.load_score import load_score
from scheduler.policy.policy import Policy
from scheduler.policy.view import JobView
from scheduler.policy.worker import Worker

FULL = 0.9


class LoadScore(Policy):
    """Trusts the reports: between two of them, all jobs go to the worker that looked idle last."""

    def score(self, job: JobView, worker: Worker) -> float:
        """The formula on the figures of the last report."""
        del job
        report = worker.report
        return load_score(report.memory, report.running, report.capacity, report.kv)

    def full(self, worker: Worker) -> bool:
        """Whether the score has reached 0.9."""
        report = worker.report
        return load_score(report.memory, report.running, report.capacity, report.kv) >= FULL
