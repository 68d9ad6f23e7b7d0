"""Why a queued job waits: the filters and the policy of a round, asked about one job. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler.policy.decide import decide
from scheduler.policy.decision import Decision, ParkReason
from scheduler.policy.filters import fits, is_shallow, must_run_alone, serves
from scheduler.policy.order import Targets
from scheduler.policy.policy import Fleet, Policy
from scheduler.policy.view import REFERENCE, Chance, FleetView, JobView, WorkerView
from scheduler.policy.window import Window
from scheduler.policy.worker import Worker


class Obstacle(StrEnum):
    """Why a worker does not take the job now."""

    AWAY = "not_active"
    MODEL = "other_model"
    TOO_LARGE = "too_large"
    SOLO = "runs_one_alone"
    ALONE = "not_empty"
    SLOTS = "no_free_slot"
    QUEUE = "engine_queues"
    FULL = "full"
    STEP = "held_back"


class Verdict(StrEnum):
    """What a round decides about the job now."""

    STARTS = "starts"
    REFUSED = "refused"
    PARKED = "parked"
    PUT_OFF = "put_off"
    GATHERS = "gathers"
    HELD_BACK = "held_back"
    BEHIND = "behind"
    NO_ROOM = "no_room"
    NO_WORKER = "no_worker"


@dataclass(frozen=True, slots=True)
class Ahead:
    """What stands before a job: in its own lane, and in all that are more urgent."""

    jobs: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker as the policy sees it for the job.

    Attributes:
        score: by the policy, lower is better; None where it could never take the job.
        first_token_ms: predicted, from now on; None likewise.
        step_ms, calm_ms: how long its next step would take with the job's prompt, and what it should stay below.
        obstacle: what rules it out now; None when nothing does.
    """

    id: str
    label: str
    held: int
    slots: int
    score: float | None = None
    first_token_ms: float | None = None
    step_ms: float | None = None
    calm_ms: float | None = None
    obstacle: Obstacle | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a queued job stands.

    Attributes:
        verdict: what a round decides now.
        worker: who takes it, when it starts.
        until_ms: when a job that gathers goes, or one that is held back is seen otherwise, at the latest.
        start_in_ms: predicted: when the work before it leaves it room; None while no worker could run it.
        first_token_in_ms: the same for its first token.
        waited_ms, target_ms: so far, and what its priority may wait for its first token (online) or its start.
        candidates: all workers, the best first.
    """

    verdict: Verdict
    ahead: Ahead
    waited_ms: float
    target_ms: float
    candidates: tuple[Candidate, ...]
    worker: str = ""
    until_ms: float | None = None
    start_in_ms: float | None = None
    first_token_in_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A queued job, and what stands before it.

    Attributes:
        view: what a round sees; the job may stand behind the heads of its lane.
        job: the one that is asked about.
        ahead: what stands before it.
        starts_per_s: how many jobs went to workers lately; 0 when that is not known.
    """

    view: FleetView
    job: JobView
    ahead: Ahead
    starts_per_s: float = 0.0


def explain(
    question: Question, now_ms: float, rng: Chance, policy: Policy, targets: Targets, window: Window
) -> Explanation:
    """Say what a round would decide about the job, and why."""
    view, job = question.view, question.job
    workers = [Worker.of(worker, now_ms) for worker in view.workers if worker.active and not worker.solo]
    fleet = Fleet(now_ms, workers, targets, view.lately, view.turn)
    weighed = {worker.id: worker for worker in workers}
    candidates = [_candidate(worker, weighed.get(worker.id), job, policy, fleet) for worker in view.workers]
    decision = decide(view, now_ms, rng, policy, targets, window)
    verdict, worker_id, until_ms = _verdict(decision, question, candidates)
    able = [weighed[one.id] for one in candidates if one.first_token_ms is not None and one.id in weighed]
    start_ms = None
    if able and verdict not in (Verdict.REFUSED, Verdict.PARKED, Verdict.PUT_OFF):
        start_ms = 0.0 if verdict is Verdict.STARTS else max(_backlog_ms(question, able), _places_ms(question, able))
    return Explanation(
        verdict=verdict,
        ahead=question.ahead,
        waited_ms=now_ms - job.submitted_ms,
        target_ms=targets.first_token_ms(job) if job.priority.online else targets.of(job.priority),
        candidates=tuple(sorted(candidates, key=_rank)),
        worker=worker_id,
        until_ms=until_ms,
        start_in_ms=start_ms,
        first_token_in_ms=None if start_ms is None else start_ms + _own_ms(job, able, at_once=not start_ms),
    )


def ahead_of(job: JobView, place: int, view: FleetView, depths: Sequence[int]) -> Ahead:
    """What stands before a job.

    Args:
        job: the job.
        place: how many stand before it in its own lane.
        view: the heads of the lanes, in the order of urgency.
        depths: how many each lane of the view holds. Tokens beyond the heads are taken to be like those in sight.
    """
    jobs, tokens = 0, 0.0
    for lane, depth in zip(view.lanes, depths, strict=True):
        own = bool(lane) and lane[0].priority is job.priority
        count = place if own else depth
        seen = lane[: min(count, len(lane))]
        jobs += count
        tokens += sum(one.tokens for one in seen) * (count / len(seen) if seen else 0)
        if own:
            break
    return Ahead(jobs, round(tokens))


def _candidate(view: WorkerView, worker: Worker | None, job: JobView, policy: Policy, fleet: Fleet) -> Candidate:
    plain = Candidate(view.id, view.label, view.held, view.slots)
    if worker is None:
        return replace(plain, obstacle=Obstacle.SOLO if view.active else Obstacle.AWAY)
    if not serves(worker, job.spec.model):
        return replace(plain, obstacle=Obstacle.MODEL)
    if not fits(job, worker.report.kv_total_tokens):
        return replace(plain, obstacle=Obstacle.TOO_LARGE)
    scores = type(policy).score is not Policy.score
    return replace(
        plain,
        score=policy.score(job, worker) if scores else None,
        first_token_ms=worker.first_token_ms(job),
        step_ms=worker.step_ms(job),
        calm_ms=worker.calm_ms(fleet.targets.token_ms),
        obstacle=_obstacle(view, worker, job, policy, fleet),
    )


def _obstacle(view: WorkerView, worker: Worker, job: JobView, policy: Policy, fleet: Fleet) -> Obstacle | None:
    """In the order in which a round would find it."""
    if view.held >= view.slots:
        return Obstacle.SLOTS
    if not is_shallow(view):
        return Obstacle.QUEUE
    if policy.full(worker):
        return Obstacle.FULL
    if must_run_alone(job) and worker.held:
        return Obstacle.ALONE
    late = job.priority.online and policy.hopeless_ms(job, fleet.workers, fleet) is not None
    return Obstacle.STEP if (policy.holds_late if late else policy.holds)(job, worker, fleet) else None


def _verdict(
    decision: Decision, question: Question, candidates: Sequence[Candidate]
) -> tuple[Verdict, str, float | None]:
    """What the round does with the job, where, and until when."""
    job = question.job
    chosen = next((item.worker for item in decision.assignments if item.ref == job.ref), "")
    if chosen:
        return Verdict.STARTS, chosen, None
    if any(item.ref == job.ref for item in decision.refusals):
        return Verdict.REFUSED, "", None
    if reason := next((item.reason for item in decision.park if item.ref == job.ref), None):
        return Verdict.PUT_OFF if reason is ParkReason.LATE else Verdict.PARKED, "", None
    if job.priority in decision.held:
        return Verdict.GATHERS, "", decision.held[job.priority]
    waits = _waits(question, candidates)
    return waits, "", decision.later_ms if waits is Verdict.HELD_BACK else None


def _waits(question: Question, candidates: Sequence[Candidate]) -> Verdict:
    """Why a job waits that the round leaves in its lane."""
    able = [one for one in candidates if one.first_token_ms is not None]
    if not able:
        return Verdict.NO_WORKER
    if all(one.obstacle not in (None, Obstacle.STEP) for one in able):
        return Verdict.NO_ROOM
    behind = question.ahead.jobs and any(one.obstacle is None for one in able)
    return Verdict.BEHIND if behind else Verdict.HELD_BACK


def _backlog_ms(question: Question, able: Sequence[Worker]) -> float:
    """How long the prompts before it take: those on the workers, and of the jobs ahead, spread over all."""
    prompts = _prompt_share(question.view) * question.ahead.tokens
    pending = sum(worker.pending_tokens for worker in able)
    strength = sum(1 / worker.speed for worker in able)
    return REFERENCE.token_ms * (prompts + pending * (question.ahead.jobs > 0)) / strength


def _prompt_share(view: FleetView) -> float:
    """Of the tokens that wait: those of prompts."""
    jobs = [job for lane in view.lanes for job in lane]
    tokens = sum(job.tokens for job in jobs)
    return sum(job.spec.prompt_tokens for job in jobs) / tokens if tokens else 0.0


def _places_ms(question: Question, able: Sequence[Worker]) -> float:
    """How long it takes until as many places are free as jobs stand before it, and one more."""
    slots = sum(worker.slots for worker in able)
    needed = question.ahead.jobs + 1 - sum(max(0, worker.slots - worker.held) for worker in able)
    if needed <= 0 or not slots:
        return 0.0
    jobs = [job for lane in question.view.lanes for job in lane] or [question.job]
    output = sum(job.spec.output_tokens for job in jobs) / len(jobs)
    token_ms = sum(worker.base_ms * worker.speed for worker in able) / len(able)
    # They end evenly over the time that one takes: at most that, as its output is a limit more often than not.
    longest_ms = output * token_ms * needed / slots
    return min(longest_ms, 1000 * needed / question.starts_per_s) if question.starts_per_s else longest_ms


def _own_ms(job: JobView, able: Sequence[Worker], *, at_once: bool) -> float:
    """From its start to its first token."""
    if at_once:
        return min(worker.first_token_ms(job) for worker in able)
    return min(job.lone_ms * worker.speed + worker.base_ms * worker.speed for worker in able)


def _rank(candidate: Candidate) -> tuple[bool, bool, float, str]:
    """Those that would take it, then those that could some day, each by score."""
    score = candidate.score if candidate.score is not None else candidate.first_token_ms
    weight = math.inf if score is None else score
    return candidate.obstacle is not None, candidate.first_token_ms is None, weight, candidate.label
