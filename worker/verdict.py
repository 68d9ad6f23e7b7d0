"""How an attempt ends, as a value: decided here, carried out by the outbox."""

from dataclasses import dataclass

from protocol.functions import Fault
from protocol.messages import ErrorInfo, Outcome
from protocol.states import State
from protocol.wire import JsonObject
from worker.engine.base import EngineBusy, EngineDead, EngineError, EngineRefused

FIRST_RETRY_MS = 500
LONGEST_RETRY_MS = 60_000


@dataclass(frozen=True, slots=True)
class Finish:
    """The job ends with this outcome."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Another attempt is made, after `delay_ms`."""

    fault: Fault = "none"
    delay_ms: int = 0
    why: str = ""
    """For the job's history; free of the prompt."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Nothing is written: the job ended elsewhere, or is no longer ours."""


Verdict = Finish | GiveBack | Drop


@dataclass(frozen=True, slots=True)
class Retries:
    """What decides over one more attempt: those that the engine failed before, and how many it may."""

    before: int
    allowed: int


def completed(body: JsonObject) -> Finish:
    """The engine answered."""
    return Finish(Outcome(state=State.COMPLETED, status_code=200, body=body))


def failed(code: str, message: str) -> Finish:
    """There is no answer, and another attempt would bring none."""
    return Finish(Outcome(state=State.FAILED, error=ErrorInfo(code=code, message=message)))


def with_partial(verdict: Verdict, body: JsonObject | None) -> Verdict:
    """Keep what came before a failure: beside the error, and without a status code, it is no whole answer."""
    if not isinstance(verdict, Finish) or verdict.outcome.error is None or verdict.outcome.body is not None:
        return verdict
    return Finish(verdict.outcome.model_copy(update={"body": body}))


def timed_out(limit_s: float) -> Finish:
    """The attempt ran for longer than the job allows."""
    return failed("request_timeout", f"it ran for longer than its time limit of {limit_s:g} s")


def unfollowed(limit_s: float) -> Finish:
    """Nobody follows it, and it asked to be cancelled then."""
    info = ErrorInfo(code="unfollowed", message=f"nobody followed it for {limit_s:g} s")
    return Finish(Outcome(state=State.CANCELLED, error=info))


def malformed() -> Finish:
    """What is stored of the job can't be read."""
    return failed("malformed", "its stored description or body can't be read")


def verdict_on(error: EngineError, retries: Retries, chance: float) -> Verdict:
    """What follows from an engine's failure.

    Args:
        error: what the engine raised.
        retries: how often it may fail.
        chance: uniform in [0, 1): spreads the retries of many jobs over time.
    """
    if isinstance(error, EngineRefused):
        info = ErrorInfo(code="engine_refused", message=str(error))
        outcome = Outcome(state=State.FAILED, status_code=error.status_code, body=error.body, error=info)
        return Finish(outcome)
    if isinstance(error, EngineBusy):
        return GiveBack(delay_ms=_spread(error.retry_after_s * 1000, chance), why=str(error))
    if isinstance(error, EngineDead):
        # An engine that never got the request is not killed by it.
        if error.reached:
            return GiveBack("strike", why=str(error))
        return GiveBack(delay_ms=_spread(FIRST_RETRY_MS, chance), why=str(error))
    if retries.before + 1 >= retries.allowed:
        return failed("engine_error", f"{error} ({retries.before + 1} attempts)")
    return GiveBack("try", _spread(FIRST_RETRY_MS * 2**retries.before, chance), str(error))


def _spread(delay_ms: float, chance: float) -> int:
    """Between 1 and 1.5 times as long, within bounds."""
    return int(min(max(delay_ms, FIRST_RETRY_MS), LONGEST_RETRY_MS) * (1 + chance / 2))
