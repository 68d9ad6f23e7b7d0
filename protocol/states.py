"""Job states as a transition table, the priorities, and the states of a worker."""

from enum import StrEnum
from typing import Literal

WorkerState = Literal["starting", "loading", "warm", "asleep", "active", "unhealthy", "draining", "leaving", "lost"]
"""Only an `active` worker takes jobs. `warm` and `asleep` are the standby states: the model is loaded, or its weights
lie in host memory; `unhealthy` has lost its engine and starts it again."""


class Priority(StrEnum):
    """One lane each; the order of the members is the order of urgency."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @property
    def online(self) -> bool:
        """True for the lane of interactive dialogue; the other lanes are offline work."""
        return self is Priority.HIGH


class State(StrEnum):
    """Where a job is: in a lane, in `due`, in an inbox, or at one of four ends."""

    DELAYED = "delayed"
    QUEUED = "queued"
    ASSIGNED = "assigned"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """True when the job has ended and its outcome is recorded."""
        return not TRANSITIONS[self] - _REVIVED

    @property
    def held(self) -> bool:
        """True when a worker holds the job in its inbox."""
        return self in (State.ASSIGNED, State.RUNNING)


_REVIVED = frozenset({State.QUEUED, State.DELAYED})
_ENDS = frozenset({State.CANCELLED, State.EXPIRED, State.FAILED})

TRANSITIONS: dict[State, frozenset[State]] = {
    State.DELAYED: _ENDS | {State.QUEUED},
    State.QUEUED: _ENDS | {State.ASSIGNED, State.DELAYED},
    State.ASSIGNED: _ENDS | {State.RUNNING, State.COMPLETED, State.QUEUED, State.DELAYED},
    State.RUNNING: _ENDS | {State.COMPLETED, State.QUEUED, State.DELAYED},
    State.COMPLETED: frozenset(),
    # Submitting the id of a job that ended without a result starts a new run.
    State.FAILED: _REVIVED,
    State.CANCELLED: _REVIVED,
    State.EXPIRED: _REVIVED,
}
"""Which states may follow each state; the model checker holds the Redis functions against it."""


def may_follow(before: State, after: State) -> bool:
    """Whether one function call may take a job from `before` to `after`."""
    return after in TRANSITIONS[before]
