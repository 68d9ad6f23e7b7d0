"""What waits in front of a worker's engine: its steps since the last report, retraced."""

from dataclasses import dataclass

from protocol.messages import LoadReport
from scheduler.policy.view import WorkerView, work_ms

TRUSTED_MS = 2_000.0
"""A worker that has been silent for longer is not taken to work on: it may be dead, and would look ever emptier."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Prompts that have no first token yet.

    Attributes:
        pending_tokens: of all of them.
        queued_tokens: of those, what the step under way does not compute.
        queued_ms: how much longer these make the reference engine's steps.
        ends_ms: how long the step under way still takes; 0 without one.
    """

    pending_tokens: int = 0
    queued_tokens: int = 0
    queued_ms: float = 0.0
    ends_ms: float = 0.0


def backlog(view: WorkerView, base_ms: float, room: int, now_ms: float, *, streams: bool) -> Backlog | None:
    """Walk the steps that the engine must have done since its report; None when all prompts are computed.

    A prompt that arrives waits for the end of the step under way and is then computed in the next ones, `room` tokens
    in each. Draining the tokens evenly instead would forget both waits, and more of them the older the report is: the
    worker that was silent for longest would look the best.

    Args:
        view: the worker.
        base_ms: what a step without prompts takes on the reference engine.
        room: prompt tokens that find place in one step.
        now_ms: of the same clock as the view's times.
        streams: whether jobs decode there, so that steps go on without prompts too.
    """
    base_ms *= view.speed
    arrivals, seen = view.unseen.arrivals, 0
    # Nothing lies ahead: a time that seems to is from before the clock went back.
    at_ms, arrived_ms = min(view.reported_ms, now_ms), [min(one.at_ms, now_ms) for one in arrivals]
    tokens, work = view.report.pending_prefill_tokens, _reported_ms(view.report)
    until_ms = min(now_ms, at_ms + TRUSTED_MS)
    while True:
        while seen < len(arrivals) and arrived_ms[seen] <= at_ms:
            tokens, work, seen = tokens + arrivals[seen].tokens, work + arrivals[seen].work_ms, seen + 1
        if tokens:
            part = min(1.0, room / tokens)
            ends_ms = at_ms + base_ms + part * work * view.speed
        elif seen == len(arrivals):
            return None
        else:
            part, ends_ms = 0.0, _begin(arrived_ms[seen], at_ms, base_ms if streams else 0.0)
        left, left_ms = tokens - min(tokens, room), (1 - part) * work
        if ends_ms > until_ms:
            later = sum(one.tokens for one in arrivals[seen:])
            later_ms = sum(one.work_ms for one in arrivals[seen:])
            return Backlog(tokens + later, left + later, left_ms + later_ms, ends_ms - until_ms)
        tokens, work, at_ms = left, left_ms, ends_ms


def _reported_ms(report: LoadReport) -> float:
    """The work of the prompts that a report says are pending, as if they were equally long."""
    count = max(1, report.prefilling)
    each = report.pending_prefill_tokens / count
    return count * work_ms(each, each)


def _begin(arrived_ms: float, at_ms: float, step_ms: float) -> float:
    """When the first step begins that can compute what arrived, if a step begins at `at_ms` and all take so long."""
    return at_ms + -(-(arrived_ms - at_ms) // step_ms) * step_ms if step_ms else arrived_ms
