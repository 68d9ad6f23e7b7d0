"""One round of dispatch: order → window → filter → score → pick."""

from collections.abc import Sequence
from heapq import nsmallest

from protocol.states import Priority
from scheduler.policy.decision import (
    LATE_KEPT,
    LATE_PARK,
    LATE_PARK_MS,
    LATEST_PARK_MS,
    PARK_MS,
    Assignment,
    Decision,
    Park,
    ParkReason,
    Refusal,
)
from scheduler.policy.filters import accepts, fits, must_run_alone, serves, stays_open
from scheduler.policy.order import Order, Targets, slack_ms
from scheduler.policy.policy import Fleet, Policy
from scheduler.policy.shortlist import MANY, Everybody, Shortlist
from scheduler.policy.view import HEADS, REFERENCE, Chance, FleetView, JobView, WorkerView
from scheduler.policy.window import Reason, Window, close
from scheduler.policy.worker import Worker

NOTHING, IDLE = Decision(), Decision(spare=True)
WHY_KEPT = 3
MOST_HELD = 8
"""So many jobs in a row that are held back end the round: those behind them are less urgent."""


def decide(view: FleetView, now_ms: float, rng: Chance, policy: Policy, targets: Targets, window: Window) -> Decision:
    """Choose who starts where. Pure: same view, time and seed, same decision."""
    if not view.lanes and not any(accepts(worker) for worker in view.workers):
        return NOTHING
    able = [Worker.of(worker, now_ms) for worker in view.workers if worker.active and not worker.solo]
    accepting = {worker.id for worker in view.workers if accepts(worker)}
    workers = [worker for worker in able if worker.id in accepting and not policy.full(worker)]
    if not workers:
        return NOTHING
    if not view.lanes:
        return IDLE
    return _Round(view, rng, policy, workers, Fleet(now_ms, able, targets, view.lately, view.turn)).run(window)


class _Round:
    """The working state of one call of `decide`."""

    def __init__(self, view: FleetView, rng: Chance, policy: Policy, workers: list[Worker], fleet: Fleet) -> None:
        self._view, self._rng, self._policy, self._fleet = view, rng, policy, fleet
        self._now_ms, self._targets = fleet.now_ms, fleet.targets
        self._room = {worker.id: worker for worker in workers}
        by_score = type(policy).pick is Policy.pick
        if by_score and len(workers) > MANY:
            self._sight: Everybody = Shortlist(fleet.workers, self._room, policy, view)
        else:
            self._sight = Everybody(fleet.workers, self._room)
        self._largest_kv: dict[str, int] = {}
        self._assignments: list[Assignment] = []
        self._park: list[Park] = []
        self._refusals: list[Refusal] = []
        self._passed_over: dict[Priority, list[JobView]] = {}
        self._held_back: list[JobView] = []
        self._held_in_a_row = 0
        self._late = self._late_in_a_row = 0

    def run(self, window: Window) -> Decision:
        arranged = (self._policy.arrange(lane, self._fleet) for lane in self._view.lanes if lane)
        lanes = tuple(tuple(lane) for lane in arranged)
        reserved = self._reserve(self._view.lanes)
        workers = tuple(self._room.values())
        verdicts = {lane[0].priority: close(lane, workers, self._now_ms, window) for lane in lanes}
        held = {priority: verdict for priority, verdict in verdicts.items() if not isinstance(verdict, Reason)}
        going = tuple(lane for lane in lanes if lane[0].priority not in held)
        order = Order(going, self._now_ms, self._targets)
        if reserved:
            order.leave_out(reserved)
        while self._room and self._held_in_a_row < MOST_HELD:
            job = order.next(self._fleet.turn)
            if job is None:
                break
            self._place(job)
        self._clear_the_way(going)
        closed = {priority: verdict for priority, verdict in verdicts.items() if isinstance(verdict, Reason)}
        later = (self._policy.look_again_ms(job, self._fleet) for job in self._held_back)
        return Decision(
            tuple(self._assignments),
            tuple(self._park),
            tuple(self._refusals),
            held,
            closed,
            min((moment for moment in later if moment is not None), default=None),
            self._late,
            self._spare(going),
        )

    def _place(self, job: JobView) -> None:
        if self._late_in_a_row >= MOST_HELD and self._is_past_its_target(job):
            # So many before it found no room that it needs no look.
            self._leave_late(job)
            return
        candidates = self._sight.with_room(job)
        if not candidates:
            if fits(job, self._largest_kv_for(job.spec.model)):
                self._passed_over.setdefault(job.priority, []).append(job)
            else:
                self._park.append(Park(job.ref, job.priority, PARK_MS, ParkReason.TOO_LARGE))
            return
        rivals = self._rivals(job, candidates)
        wait_ms = self._policy.hopeless_ms(job, rivals, self._fleet)
        if wait_ms is None:
            self._give_or_hold(job, candidates, rivals)
        elif self._may_refuse(job) or self._is_refused_in_time(job, wait_ms):
            self._refusals.append(Refusal(job.ref, job.priority, wait_ms))
        elif job.priority.online:
            self._give_or_put_off(job, candidates, rivals)
        else:
            self._give_or_hold(job, candidates, rivals)

    def _give_or_hold(self, job: JobView, candidates: list[Worker], rivals: list[Worker]) -> None:
        chosen = self._choose(job, candidates, rivals)
        if chosen:
            self._give(job, chosen, rivals)
            self._held_in_a_row = 0
        else:
            self._held_back.append(job)
            self._held_in_a_row += 1

    def _give_or_put_off(self, job: JobView, candidates: list[Worker], rivals: list[Worker]) -> None:
        """A job that is late takes what the others leave."""
        left = [worker for worker in candidates if not self._policy.holds_late(job, worker, self._fleet)]
        if left:
            self._give(job, self._policy.pick(job, left, self._fleet, self._rng), rivals)
            self._late_in_a_row = 0
        else:
            self._leave_late(job)
            self._late_in_a_row += 1

    def _leave_late(self, job: JobView) -> None:
        """The first ones wait in sight for what room comes; the others would hide who can still make it."""
        if self._late < LATE_KEPT:
            self._late += 1
            return
        again_ms = max(LATE_PARK_MS, min(LATEST_PARK_MS, LATE_PARK * self._fleet.waited_ms(job)))
        self._park.append(Park(job.ref, job.priority, int(again_ms), ParkReason.LATE))

    def _is_past_its_target(self, job: JobView) -> bool:
        if not job.priority.online or job.begun or self._may_refuse(job):
            return False
        return self._fleet.waited_ms(job) > self._targets.first_token_ms(job)

    def _may_refuse(self, job: JobView) -> bool:
        return job.priority in self._targets.refuse and not job.spec.best_effort

    def _is_refused_in_time(self, job: JobView, wait_ms: float) -> bool:
        """Whether it is told now that its first token would come after its deadline, and need not wait for that."""
        if job.priority not in self._targets.in_time or job.spec.best_effort:
            return False
        return 0 < job.deadline_ms < job.submitted_ms + wait_ms

    def _spare(self, lanes: Sequence[Sequence[JobView]]) -> bool:
        """Whether room is left that nobody in sight waits for, and nobody stands out of sight."""
        if not self._room or self._late or self._held_in_a_row >= MOST_HELD:
            return False
        return all(len(lane) < HEADS for lane in lanes)

    def _rivals(self, job: JobView, candidates: list[Worker]) -> list[Worker]:
        """The workers that the job is weighed on: full ones too, for a policy that looks so far."""
        weighed = self._policy.looks_past_full and not must_run_alone(job)
        return self._sight.able(job) if weighed and len(self._room) < len(self._fleet.workers) else candidates

    def _choose(self, job: JobView, candidates: list[Worker], rivals: list[Worker]) -> Worker | None:
        """The worker that takes it; None when it should rather wait."""
        policy, fleet = self._policy, self._fleet
        best = policy.pick(job, rivals, fleet, self._rng)
        if best.id in self._room and not policy.holds(job, best, fleet):
            return best
        if not policy.settles(job, fleet):
            return None
        allowed = [worker for worker in candidates if worker is not best and not policy.holds(job, worker, fleet)]
        return policy.pick(job, allowed, fleet, self._rng) if allowed else None

    def _largest_kv_for(self, model: str) -> int:
        if model not in self._largest_kv:
            self._largest_kv[model] = largest_kv(self._view.workers, model)
        return self._largest_kv[model]

    def _give(self, job: JobView, worker: Worker, rivals: Sequence[Worker]) -> None:
        uncached, work_ms, predicted_ms = worker.uncached_tokens(job), worker.work_ms(job), worker.first_token_ms(job)
        pending_ms = REFERENCE.token_ms * worker.pending_tokens * worker.speed
        weighed = nsmallest(WHY_KEPT, ((rival.first_token_ms(job), rival.id) for rival in rivals))
        why = tuple((name, ms) for ms, name in weighed)
        given = Assignment(job.ref, job.priority, worker.id, uncached, predicted_ms, pending_ms, work_ms, why)
        self._assignments.append(given)
        worker.take(job)
        worker.alone = must_run_alone(job)
        self._fleet.turn += 1
        self._sight.given(job, worker)
        if not stays_open(worker) or self._policy.full(worker):
            del self._room[worker.id]

    def _reserve(self, lanes: Sequence[Sequence[JobView]]) -> JobView | None:
        """For an overdue job at a lane's head that must run alone, keep the emptiest worker free until it is empty.

        Otherwise a busy fleet, where no worker is ever empty, would never run it.
        """
        for job in (lane[0] for lane in lanes if lane):
            if must_run_alone(job) and slack_ms(job, self._now_ms, self._targets) < 0:
                emptiest = self._emptiest(job)
                if emptiest:
                    self._keep_free(emptiest.id, job)
                    return job
        return None

    def _emptiest(self, job: JobView) -> WorkerView | None:
        """Of the workers that may run the job some day, full ones too; the same one each round while it drains."""
        able = (worker for worker in self._view.workers if worker.active and not worker.solo)
        serving = (worker for worker in able if serves(worker, job.spec.model))
        fitting = [worker for worker in serving if fits(job, worker.report.kv_total_tokens)]
        return min(fitting, key=lambda worker: (worker.held, worker.id), default=None)

    def _keep_free(self, worker_id: str, job: JobView) -> None:
        worker = self._room.get(worker_id)
        if worker and worker.held:
            del self._room[worker_id]
        elif worker:
            self._give(job, worker, [worker])

    def _clear_the_way(self, lanes: Sequence[Sequence[JobView]]) -> None:
        """Park half of a lane's window when room is left and the window is all jobs that can't use it.

        Only half: the rest keeps waiting for the workers that could take it.
        """
        if not self._room:
            return
        for lane in lanes:
            passed_over = self._passed_over.get(lane[0].priority, ())
            if HEADS <= len(lane) == len(passed_over):
                self._park += [
                    Park(job.ref, job.priority, PARK_MS, ParkReason.IN_THE_WAY) for job in lane[HEADS // 2 :]
                ]


def largest_kv(workers: Sequence[WorkerView], model: str) -> int:
    """The largest KV cache of the active workers that serve the model; 0 when one does not tell, or none does.

    A job whose model nobody serves now waits as one does whose workers are full: the next worker may bring it.
    """
    sizes = [worker.report.kv_total_tokens for worker in workers if worker.active and serves(worker, model)]
    return 0 if 0 in sizes else max(sizes, default=0)
