"""How long a worker's process was in each of its states."""

from protocol.clock import Clock
from protocol.states import WorkerState


class StateClock:
    """Adds up the time, from `starting` on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state: WorkerState = "starting"
        self._since_s = clock.monotonic()
        self._spent_s: dict[str, float] = {}

    def enter(self, state: WorkerState) -> float | None:
        """The worker is in this state now; how long it was in the one before, None when it is the same one."""
        if state == self._state:
            return None
        now_s = self._clock.monotonic()
        lasted_s = now_s - self._since_s
        self._spent_s[self._state] = self._spent_s.get(self._state, 0.0) + lasted_s
        self._state, self._since_s = state, now_s
        return lasted_s

    def seconds(self) -> dict[str, float]:
        """Seconds by state up to now, the present one last."""
        spent = dict(self._spent_s)
        before = spent.pop(self._state, 0.0)
        spent[self._state] = before + self._clock.monotonic() - self._since_s
        return {state: round(seconds, 3) for state, seconds in spent.items()}
