"""What a round of dispatch decided: values, which others turn into effects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from protocol.states import Priority
from scheduler.policy.window import Reason

PARK_MS = 5_000
"""How long a parked job waits for the fleet to change."""
LATE_PARK_MS, LATEST_PARK_MS = 1_000, 30_000
"""How long one waits that is late: at least, and at most."""
LATE_PARK = 0.5
"""And of what it has waited already: so the late cost the store little, and none of them waits for much longer."""
LATE_KEPT = 32
"""So many that are late stay in sight, an eighth of a lane's window: they take what room comes, and hide nobody."""


class ParkReason(StrEnum):
    """Why a job is set aside for a while."""

    TOO_LARGE = "too_large"
    """No active worker that serves its model has a KV cache so large."""
    IN_THE_WAY = "in_the_way"
    """It hides the rest of its lane from workers that have room, and none of them can take it."""
    LATE = "late"
    """It can't meet its target any more, and those that can leave nothing for it now, nor for those before it."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Job `ref` goes to `worker`.

    Attributes:
        prompt_tokens: what it must compute of the prompt: the rest is in its cache.
        predicted_ms: when the first token should be there, from now.
        pending_ms: how much of that is prompts of others.
        work_ms: how much longer its prompt makes the reference engine's steps.
        why_scores: (worker, predicted ms) of the three candidates where it would come soonest.
    """

    ref: str
    priority: Priority
    worker: str
    prompt_tokens: int
    predicted_ms: float = 0.0
    pending_ms: float = 0.0
    work_ms: float = 0.0
    why_scores: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Job `ref` can't meet its target, and is refused: its first token would take `wait_ms` since it waits."""

    ref: str
    priority: Priority
    wait_ms: float


@dataclass(frozen=True, slots=True)
class Park:
    """Job `ref` leaves its lane for `delay_ms` and comes back to its place."""

    ref: str
    priority: Priority
    delay_ms: int
    reason: ParkReason


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now.

    Attributes:
        assignments: in the order of urgency.
        park: jobs to set aside.
        refusals: jobs to end.
        later_ms: when a job that is held back may be seen otherwise; None when none is.
        held: lanes whose jobs gather company, and until when (ms).
        closed: why the windows of the other lanes are closed. Both are empty while no worker has room.
        late: online jobs that can't meet their targets and wait for what the others leave.
        spare: workers have room that nobody in sight waits for: those that were put off may come back.
    """

    assignments: tuple[Assignment, ...] = ()
    park: tuple[Park, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    held: Mapping[Priority, float] = field(default_factory=dict)
    closed: Mapping[Priority, Reason] = field(default_factory=dict)
    later_ms: float | None = None
    late: int = 0
    spare: bool = False

    @property
    def wake_at_ms(self) -> float | None:
        """When to decide again though nothing happens; None when only news can change the decision."""
        moments = list(self.held.values())
        return min(moments if self.later_ms is None else [*moments, self.later_ms], default=None)
