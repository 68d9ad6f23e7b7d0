"""The spans of one attempt. Times are Redis's own, as in the job's record; what only we know is counted from them."""

from protocol.messages import Started
from telemetry import tracing
from worker.outgoing import Outgoing
from worker.verdict import Drop, GiveBack, Verdict

_FAULTS = {"none": "given_back", "try": "engine_failed", "strike": "engine_died"}


class AttemptTrace:
    """What a traced job's attempt tells: `queue` and `inbox` when it starts, `engine` and `finish` when it is over.

    Attributes:
        header: the `traceparent` for an engine, whose own spans then stand under ours.
    """

    def __init__(self, out: Outgoing, started: Started) -> None:
        self._out, self._parent = out, started.spec.trace
        self._about: dict[str, str | int] = {
            "tokenfleet.job": str(out.handle),
            "tokenfleet.attempt": out.attempt,
            "tokenfleet.worker": out.worker,
        }
        self._started_s = started.started_ms / 1000
        self._model = started.spec.model
        self.header = tracing.beneath(self._parent)
        self._verdict: Verdict | None = None
        self._ran_s = 0.0
        self._recorded = False
        self._tell_waits(started)

    def ended(self, verdict: Verdict, ran_s: float) -> None:
        """The engine is done with it, `ran_s` seconds after its start."""
        self._verdict, self._ran_s = verdict, ran_s
        self._tell_end()

    def recorded(self) -> None:
        """Redis has its end, or said that it is not ours any more."""
        self._recorded = True
        self._tell_end()

    def _tell_waits(self, started: Started) -> None:
        assigned_s = started.assigned_ms / 1000
        if lost := started.lost:
            job: dict[str, str | int] = {"tokenfleet.job": str(self._out.handle), "tokenfleet.attempt": lost.attempt}
            begun_s, ended_s = lost.started_ms / 1000, lost.ended_ms / 1000
            tracing.span("engine", self._parent, (begun_s, ended_s), attributes=job, error="worker_lost")
        tracing.span("queue", self._parent, (started.waiting_ms / 1000, assigned_s), attributes=self._about)
        tracing.span("inbox", self._parent, (assigned_s, self._started_s), attributes=self._about)

    def _tell_end(self) -> None:
        """Once both are known, in whichever order they came."""
        if self._verdict is None or not self._recorded:
            return
        finished_s, first_s = self._out.finished_ms / 1000, self._first_s()
        end_s = max(self._started_s + self._ran_s, first_s or 0.0)
        end_s = min(end_s, finished_s) if finished_s else end_s
        events = [("first_token", first_s)] if first_s else []
        tracing.span(
            "engine",
            self._parent,
            (self._started_s, end_s),
            attributes={**self._about, "gen_ai.request.model": self._model},
            events=events,
            error=_error(self._verdict, recorded=self._out.accepted),
            own=self.header,
        )
        if finished_s:
            tracing.span("finish", self._parent, (end_s, finished_s), attributes=self._about)

    def _first_s(self) -> float | None:
        out = self._out
        if out.first_token_after_ms < 0:
            return None
        first_s = out.first_token_ms / 1000
        # Where Redis has none of this attempt: it was given back, or has gone on with another one's text.
        return first_s if first_s >= self._started_s else self._started_s + out.first_token_after_ms / 1000


def _error(verdict: Verdict, *, recorded: bool) -> str:
    if isinstance(verdict, GiveBack):
        return _FAULTS[verdict.fault]
    if isinstance(verdict, Drop):
        return "dropped"
    if verdict.outcome.error:
        return verdict.outcome.error.code
    return "" if recorded else "stale"
