"""Policy `predictive`, the default: predicts first tokens and steps, and holds jobs back rather than slow streams down.

Sources: the predicted first token is Mooncake's choice; the step's cost is `protocol/cost_model.py`; holding back, the
order and the refusal are measured in `make bench-dispatch`, which README.md beside this file explains.
"""

from collections.abc import Sequence

from scheduler.policy.order import LATE_TURN
from scheduler.policy.policy import Fleet, Policy, nearly_overflows
from scheduler.policy.view import JobView
from scheduler.policy.worker import Worker

REUSE = 0.5
"""So much more counts what a job has to compute itself: a prefix that is found saves those behind it as much."""
PENDING_FULL_TOKENS = 8192
"""A worker with so many prompt tokens before it takes nothing: who comes later could not overtake there."""
OFFLINE = 0.78
"""The share of what online jobs may fill that offline work may: they are to find room beside it."""
PLACES_OFFLINE = 0.9
"""Offline work fills this share of a worker's slots and leaves one at least: rows may run for minutes, and where they
fill all slots a newcomer waits for the end of one."""
KV_OFFLINE = 0.8
"""Offline work fills a KV cache up to this share."""
URGENT_MS = 150.0
"""A job with less slack than this goes to any worker that is open."""
SETTLE = 0.4
"""From this share of its target on a job takes the best worker that it may have, not only the best of all."""
LATE_ONLINE = LATE_TURN // 2 - 1
"""Of `LATE_TURN` starts this one may be a late online job's: an overdue batch takes the last one first."""
LATE_SLOTS = 0.9
"""Late online jobs fill this share of a worker's slots: or who comes new in their flood would wait for a place."""
SLOW = 0.5
"""While on each worker more than this share of the streams is slower than the target, predictions are too bright."""
AGING = 0.2
"""Each ms that a job has waited makes its prompt count for so much less in the order."""


class Predictive(Policy):
    """Binds late: to the worker where the first token comes soonest and harms the other streams least."""

    looks_past_full = True

    def score(self, job: JobView, worker: Worker) -> float:
        """Predicted first token, with its own work half again, × the worker's step: ms²."""
        own_ms = REUSE * worker.work_ms(job) * worker.speed
        return (worker.first_token_ms(job) + own_ms) * worker.base_ms * worker.speed

    def full(self, worker: Worker) -> bool:
        """Whether too much waits before it, or its KV cache is about to overflow."""
        return worker.pending_tokens >= PENDING_FULL_TOKENS or nearly_overflows(worker)

    def arrange(self, lane: Sequence[JobView], fleet: Fleet) -> Sequence[JobView]:
        """Online: what is urgent or was begun, shortest first; then what has time; then what is late."""
        if len(lane) < 2 or not lane[0].priority.online:
            return lane
        now_ms, target_ms, keyed = fleet.now_ms, fleet.targets.high_ms, []
        for place, job in enumerate(lane):
            waited_ms = now_ms - job.submitted_ms
            # As `_slack_ms`, written out: this runs for each job of the window in each round.
            slack_ms = max(target_ms, 3 * job.lone_ms) - waited_ms - job.prefill_ms
            if job.begun or 0 <= slack_ms < URGENT_MS:
                keyed.append((0, job.prefill_ms, place))
            else:
                keyed.append((1 if slack_ms > 0 else 2, job.prefill_ms - AGING * waited_ms, place))
        return [lane[place] for _, _, place in sorted(keyed)]

    def holds(self, job: JobView, worker: Worker, fleet: Fleet) -> bool:
        """Whether the job would make the worker's streams too slow."""
        if job.priority.online:
            return self._holds_online(job, worker, fleet)
        if not fleet.lately.online or not worker.held or _belongs_to_the_late(job, fleet):
            return False
        return worker.held + 1 > PLACES_OFFLINE * worker.slots or self._holds_offline(job, worker, fleet)

    def _holds_online(self, job: JobView, worker: Worker, fleet: Fleet) -> bool:
        """By the next step. An idle prefill queue lets anybody in: a long prompt has to be computed some time.

        Offline work makes each step a long one: while it fills the worker, the pace decides.
        """
        if not worker.pending_tokens or 0 <= _slack_ms(job, fleet) <= URGENT_MS:
            return False
        calm_ms = worker.calm_ms(fleet.targets.token_ms)
        return worker.step_ms(job) > calm_ms and not (fleet.lately.offline and worker.token_ms <= calm_ms)

    def _holds_offline(self, job: JobView, worker: Worker, fleet: Fleet) -> bool:
        """By its KV cache, the next step, and the pace. A long prompt alone is one long step: streams can bear it."""
        if 0 < KV_OFFLINE * worker.report.kv_total_tokens <= worker.kv_tokens + job.tokens:
            return True
        target_ms = fleet.targets.token_ms
        if worker.pending_tokens and worker.step_ms(job) > OFFLINE * worker.calm_ms(target_ms):
            return True
        return worker.token_ms > OFFLINE * worker.bearable_ms(target_ms)

    def holds_late(self, job: JobView, worker: Worker, fleet: Fleet) -> bool:
        """It takes what offline work may, and its turn once it has waited for as long as a batch should."""
        its_turn = fleet.turn % LATE_TURN == LATE_ONLINE
        if not worker.held or (its_turn and fleet.waited_ms(job) > fleet.targets.medium_ms):
            return False
        return worker.held > LATE_SLOTS * worker.slots or self._holds_offline(job, worker, fleet)

    def settles(self, job: JobView, fleet: Fleet) -> bool:
        """Whether it has waited long enough to take less than the best; offline work always does."""
        if not job.priority.online:
            return True
        return fleet.waited_ms(job) > SETTLE * fleet.targets.first_token_ms(job)

    def hopeless_ms(self, job: JobView, able: Sequence[Worker], fleet: Fleet) -> float | None:
        """Its predicted wait when that is past its deadline; online: past its target, or while all streams are slow.

        One that was begun is not: somebody has read its first tokens.
        """
        if not able or (job.begun and job.priority.online):
            return None
        soonest = min(worker.first_token_ms(job) for worker in able)
        wait_ms = fleet.waited_ms(job) + soonest
        if job.deadline_ms and fleet.now_ms + soonest > job.deadline_ms:
            return wait_ms
        if not job.priority.online:
            return None
        slow = all(self._slow(worker, fleet) for worker in able)
        return wait_ms if slow or wait_ms > fleet.targets.first_token_ms(job) else None

    def _slow(self, worker: Worker, fleet: Fleet) -> bool:
        """Whether a job more would make its streams too slow, by prediction; or most of them are so already.

        Refused before the target is reached, as streams last for seconds. Where offline work fills the worker it keeps
        out first: then only at the target.
        """
        if worker.report.slow_share > SLOW:
            return True
        target_ms = fleet.targets.token_ms
        return worker.token_ms > (worker.bearable_ms(target_ms) if fleet.lately.offline else worker.calm_ms(target_ms))

    def look_again_ms(self, job: JobView, fleet: Fleet) -> float | None:
        """When it becomes urgent, or settles, whichever comes first and is still to come."""
        if not job.priority.online:
            return None
        target = fleet.targets.first_token_ms(job)
        moments = (job.submitted_ms + target - URGENT_MS - job.prefill_ms, job.submitted_ms + SETTLE * target)
        return min((moment for moment in moments if moment > fleet.now_ms), default=None)


def _belongs_to_the_late(job: JobView, fleet: Fleet) -> bool:
    """Whether this start is one of those kept for overdue offline jobs: they move however strained the fleet is."""
    return fleet.turn % LATE_TURN == LATE_TURN - 1 and fleet.waited_ms(job) > fleet.targets.of(job.priority)


def _slack_ms(job: JobView, fleet: Fleet) -> float:
    """What is left until its first token is due, less its own prefill."""
    return job.submitted_ms + fleet.targets.first_token_ms(job) - fleet.now_ms - job.prefill_ms
