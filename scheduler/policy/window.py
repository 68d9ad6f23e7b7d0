"""The batch window: when the jobs of a lane may go."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from scheduler.policy.view import JobView
from scheduler.policy.worker import Worker


@dataclass(frozen=True, slots=True)
class Window:
    """How long an offline job gathers company at most, and after how long without any it stops."""

    offline_ms: float = 200.0
    quiet_ms: float = 20.0


class Reason(StrEnum):
    """Why a lane's window is closed: its jobs go as far as there is room."""

    ROOM = "room"
    """They could start at once: online jobs, or some worker runs less than half of what it may."""
    FULL = "full"
    """As many wait as there is room for: more company would only wait for room."""
    AGE = "age"
    """The oldest has gathered for as long as it may."""
    QUIET = "quiet"
    """None that could share a prefix came lately."""


def close(lane: Sequence[JobView], workers: Sequence[Worker], now_ms: float, window: Window) -> Reason | float:
    """Why the lane's jobs may go now; or, while they gather, when to look again (ms, at most `offline_ms` from now).

    Args:
        lane: at least one job.
        workers: those that have room.
        now_ms: the time.
        window: its bounds.
    """
    if lane[0].priority.online or any(2 * worker.held < worker.slots for worker in workers):
        return Reason.ROOM
    if len(lane) >= sum(worker.slots - worker.held for worker in workers):
        return Reason.FULL
    age_ends = min(job.submitted_ms for job in lane) + window.offline_ms
    if age_ends <= now_ms:
        return Reason.AGE
    arrivals = [job.submitted_ms for job in lane if job.spec.prefix]
    quiet_begins = max(arrivals, default=0.0) + window.quiet_ms
    if not arrivals or quiet_begins <= now_ms:
        return Reason.QUIET
    return min(age_ends, quiet_begins)
