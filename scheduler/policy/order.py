"""One order of urgency over the lanes. The rule and its reasons stand in README.md, section Order."""

from dataclasses import dataclass

from protocol.states import Priority
from scheduler.policy.view import JobView

LATE_TURN = 8
"""Each eighth start belongs to an offline lane whose head is overdue, in turns."""
_PLACE = {priority: place for place, priority in enumerate(Priority)}
_Lane = tuple[JobView, ...]
_Key = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Targets:
    """How long a job of each priority should wait at most, when a deadline counts as near, and how fast streams go.

    Attributes:
        high_ms, medium_ms, low_ms: for the start; of an online job for the first token.
        near_ms: a job that must start within so long goes by its deadline.
        token_ms: for each token of a stream after its first; twice as long for a prompt over `long_tokens`.
        refuse: the priorities whose jobs are refused when they can't meet their target; others wait as they must.
        in_time: the priorities whose jobs are refused only when they can't meet their deadline.
    """

    high_ms: float = 500.0
    medium_ms: float = 60_000.0
    low_ms: float = 600_000.0
    near_ms: float = 2_000.0
    token_ms: float = 50.0
    long_tokens: int = 8_192
    refuse: frozenset[Priority] = frozenset()
    in_time: frozenset[Priority] = frozenset()

    def of(self, priority: Priority) -> float:
        """The priority's target in ms."""
        return (self.high_ms, self.medium_ms, self.low_ms)[_PLACE[priority]]

    def first_token_ms(self, job: JobView, speed: float = 1.0) -> float:
        """When the job's first token should be there: its priority's target, or three times its prefill alone."""
        return max(self.of(job.priority), 3 * job.lone_ms * speed)


def slack_ms(job: JobView, now_ms: float, targets: Targets) -> float:
    """What is left until the job has waited as long as its priority may; below 0 it is overdue."""
    return job.submitted_ms + targets.of(job.priority) - now_ms


def in_lane(job: JobView, now_ms: float, targets: Targets) -> _Key:
    """Sort key of a lane's head: slack, then priority.

    Age lifts an offline job up to an online newcomer, not past it: else a batch older than its target, as any long
    one gets, would stand before every chat.
    """
    slack, place = slack_ms(job, now_ms, targets), _PLACE[job.priority]
    return (slack if place == 0 else max(slack, targets.high_ms), place)


def by_deadline(job: JobView, now_ms: float, targets: Targets) -> _Key:
    """Sort key of a job that must start soon to meet its deadline: at least as urgent as an online newcomer."""
    return (min(job.start_by_ms - now_ms, targets.high_ms), _PLACE[job.priority])


def near_deadlines(lanes: tuple[_Lane, ...], now_ms: float, targets: Targets) -> _Lane:
    """The jobs that can still meet their deadlines but only if they start soon, the most urgent first."""
    horizon = now_ms + targets.near_ms
    near = [job for lane in lanes for job in lane if horizon >= job.start_by_ms >= now_ms]
    # The sort is stable: among equals the lane's own order stays.
    return tuple(sorted(near, key=lambda job: (job.start_by_ms, _PLACE[job.priority])))


@dataclass(slots=True)
class _Queue:
    """The jobs of one lane, or those with near deadlines, and how far the round has gone through them."""

    jobs: _Lane
    deadlines: bool
    at: int = 0
    key: _Key = (0.0, 0)
    overdue: bool = False


class Order:
    """Yields the jobs of some lanes, the most urgent first, each once."""

    def __init__(self, lanes: tuple[_Lane, ...], now_ms: float, targets: Targets) -> None:
        self._now_ms, self._targets = now_ms, targets
        self._passed: set[str] = set()
        near = _Queue(near_deadlines(lanes, now_ms, targets), deadlines=True)
        queues = [near, *(_Queue(lane, deadlines=False) for lane in lanes)]
        self._queues = [queue for queue in queues if queue.jobs]
        for queue in self._queues:
            self._weigh(queue)

    def next(self, turn: int) -> JobView | None:
        """The next job, when `turn` jobs were started before it; None when none is left."""
        if not self._queues:
            return None
        queue = min(self._queues, key=_urgency)
        if turn % LATE_TURN == LATE_TURN - 1:
            overdue = [late for late in self._queues if late.overdue]
            queue = overdue[turn // LATE_TURN % len(overdue)] if overdue else queue
        job = queue.jobs[queue.at]
        self.leave_out(job)
        return job

    def leave_out(self, job: JobView) -> None:
        """Never yield this job (again)."""
        self._passed.add(job.ref)
        for queue in tuple(self._queues):
            self._move_on(queue)

    def _move_on(self, queue: _Queue) -> None:
        """Go to the queue's first job that was not passed: one with a near deadline stands in two queues."""
        jobs, before = queue.jobs, queue.at
        while queue.at < len(jobs) and jobs[queue.at].ref in self._passed:
            queue.at += 1
        if queue.at == len(jobs):
            self._queues.remove(queue)
        elif queue.at > before:
            self._weigh(queue)

    def _weigh(self, queue: _Queue) -> None:
        job = queue.jobs[queue.at]
        if queue.deadlines:
            queue.key = by_deadline(job, self._now_ms, self._targets)
        else:
            queue.key = in_lane(job, self._now_ms, self._targets)
            queue.overdue = not job.priority.online and slack_ms(job, self._now_ms, self._targets) < 0


def _urgency(queue: _Queue) -> _Key:
    return queue.key
