"""What follows from an engine's failure: a table."""

import pytest

from protocol.functions import Fault
from protocol.states import State
from worker.engine.base import EngineBusy, EngineDead, EngineError, EngineFault, EngineRefused
from worker.verdict import LONGEST_RETRY_MS, Finish, GiveBack, Retries, completed, timed_out, verdict_on

FIRST, SECOND, LAST = Retries(0, 3), Retries(1, 3), Retries(2, 3)


@pytest.mark.parametrize(
    ("error", "retries", "fault", "delay_ms"),
    [
        (EngineBusy(2.0), FIRST, "none", 2_000),
        (EngineBusy(0.0), FIRST, "none", 500),
        (EngineBusy(9_999.0), FIRST, "none", LONGEST_RETRY_MS),
        (EngineFault("500"), FIRST, "try", 500),
        (EngineFault("500"), SECOND, "try", 1_000),
        (EngineDead("gone"), LAST, "strike", 0),
        (EngineDead("gone", reached=False), FIRST, "none", 500),
    ],
)
def test_another_attempt(error: EngineError, retries: Retries, fault: Fault, delay_ms: int) -> None:
    assert verdict_on(error, retries, chance=0.0) == GiveBack(fault, delay_ms, why=str(error))


def test_chance_spreads_the_delays() -> None:
    given = [verdict_on(EngineFault("500"), FIRST, chance) for chance in (0.0, 0.5, 0.999)]
    delays = [verdict.delay_ms for verdict in given if isinstance(verdict, GiveBack)]
    assert delays == [500, 625, 749]


def test_a_refusal_keeps_the_engine_s_answer() -> None:
    verdict = verdict_on(EngineRefused(422, {"error": "no"}), FIRST, 0.0)
    assert isinstance(verdict, Finish)
    outcome = verdict.outcome
    assert (outcome.state, outcome.status_code, outcome.body) == (State.FAILED, 422, {"error": "no"})
    assert outcome.error is not None
    assert outcome.error.code == "engine_refused"


def test_the_last_try_fails_the_job() -> None:
    verdict = verdict_on(EngineFault("it answered 500"), LAST, 0.0)
    assert isinstance(verdict, Finish)
    assert verdict.outcome.error is not None
    assert verdict.outcome.error.code == "engine_error"
    assert "3 attempts" in verdict.outcome.error.message


def test_ends() -> None:
    assert completed({"a": 1}).outcome.status_code == 200
    error = timed_out(1.5).outcome.error
    assert error is not None
    assert (error.code, "1.5 s" in error.message) == ("request_timeout", True)
