"""Policy `predictive`, the default: predicts first tokens and steps, and holds jobs back rather than slow streams down.

Sources: the predicted first token is Mooncake's choice; the step's cost is `protocol/cost_model.py`; holding back, the
order and the refusal are measured in `make bench-dispatch`, which README.md beside this file explains.
"""

from collections.abc import Sequence

from scheduler.policy.policy import Fleet, Policy
from scheduler.policy.view import REFERENCE, JobView
from scheduler.policy.worker import Worker

PENDING_FULL_TOKENS = 8192
"""A worker with so many prompt tokens before it takes nothing: who comes later could not overtake there."""
KV_FULL, KV_OFFLINE = 0.9, 0.8
URGENT_MS = 150.0
"""A job with less slack than this goes to any worker that is open."""
SETTLE = 0.4
"""From this share of its target on a job takes the best worker that it may have, not only the best of all."""
SLOW = 0.05
"""While on each worker more than this share of the streams is slower than the target, a new job only adds to them."""
AGING = 0.2
"""Each ms that a job has waited makes its prompt count for so much less in the order."""


class Predictive(Policy):
    """Binds late: to the worker where the first token comes soonest and harms the other streams least."""

    looks_past_full = True

    def score(self, job: JobView, worker: Worker) -> float:
        """Predicted first token × the worker's step: ms²."""
        predicted_ms = worker.first_token_ms(job, worker.uncached_tokens(job.spec))
        return predicted_ms * worker.base_ms * worker.speed

    def full(self, worker: Worker) -> bool:
        """Whether too much waits before it, or its KV cache is about to overflow; an empty one is never full."""
        if worker.pending_tokens >= PENDING_FULL_TOKENS:
            return True
        total = worker.report.kv_total_tokens
        return 0 < KV_FULL * total <= worker.kv_tokens and worker.held > 0

    def arrange(self, lane: Sequence[JobView], fleet: Fleet) -> Sequence[JobView]:
        """Online: what is urgent and can still make it, shortest first; then what has time; then what is late."""
        if len(lane) < 2 or not lane[0].priority.online:
            return lane
        return sorted(lane, key=lambda job: _urgency(job, fleet))

    def holds(self, job: JobView, worker: Worker, fleet: Fleet) -> bool:
        """Whether the job would make the worker's next step too long for its streams.

        An idle prefill queue lets anybody in: a prompt longer than a step has to be computed some time.
        """
        if job.priority.online:
            if not worker.pending_tokens or _slack_ms(job, fleet) <= URGENT_MS:
                return False
            return self._strains(job, worker, fleet)
        if not fleet.online_lately:
            return False
        total = worker.report.kv_total_tokens
        if worker.held and 0 < KV_OFFLINE * total <= worker.kv_tokens + job.tokens:
            return True
        return worker.held > 0 and self._strains(job, worker, fleet)

    def _strains(self, job: JobView, worker: Worker, fleet: Fleet) -> bool:
        """Whether the next step, with all pending prompts and the job's own, is too long for those who stream."""
        return worker.step_ms(worker.uncached_tokens(job.spec)) > worker.calm_ms(fleet.targets.token_ms)

    def settles(self, job: JobView, fleet: Fleet) -> bool:
        """Whether it has waited long enough to take less than the best; offline work always does."""
        if not job.priority.online:
            return True
        return fleet.waited_ms(job) > SETTLE * fleet.targets.first_token_ms(job)

    def hopeless_ms(self, job: JobView, able: Sequence[Worker], fleet: Fleet) -> float | None:
        """Its predicted wait when that is past its target, or while all workers' streams are too slow already."""
        if not job.priority.online or not able:
            return None
        soonest = min(worker.first_token_ms(job, worker.uncached_tokens(job.spec)) for worker in able)
        wait_ms = fleet.waited_ms(job) + soonest
        slow = all(worker.report.slow_share > SLOW for worker in able)
        return wait_ms if slow or wait_ms > fleet.targets.first_token_ms(job) else None

    def look_again_ms(self, job: JobView, fleet: Fleet) -> float | None:
        """When it becomes urgent, or settles, whichever comes first and is still to come."""
        if not job.priority.online:
            return None
        target = fleet.targets.first_token_ms(job)
        moments = (job.submitted_ms + target - URGENT_MS - _prefill_ms(job), job.submitted_ms + SETTLE * target)
        return min((moment for moment in moments if moment > fleet.now_ms), default=None)


def _prefill_ms(job: JobView) -> float:
    return REFERENCE.token_ms * job.spec.prompt_tokens


def _slack_ms(job: JobView, fleet: Fleet) -> float:
    """What is left until its first token is due, less its own prefill."""
    return job.submitted_ms + fleet.targets.first_token_ms(job) - fleet.now_ms - _prefill_ms(job)


def _urgency(job: JobView, fleet: Fleet) -> tuple[int, float]:
    slack_ms, prefill_ms = _slack_ms(job, fleet), _prefill_ms(job)
    if 0 <= slack_ms < URGENT_MS:
        return 0, prefill_ms
    return 1 if slack_ms >= URGENT_MS else 2, prefill_ms - AGING * fleet.waited_ms(job)
