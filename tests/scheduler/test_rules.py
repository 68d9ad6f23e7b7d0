import pytest
from structlog.testing import capture_logs

from protocol.errors import SetupError
from protocol.log import get_logger
from protocol.settings import Settings
from protocol.states import Priority
from scheduler import outage as outage_module
from scheduler.outage import LONG_S, LONGEST_PAUSE_S, Backoff, Outage
from scheduler.policy.load_score import LoadScore
from scheduler.rules import rules_of
from tests.support.waiting import FakeClock


def test_settings_become_ms() -> None:
    rules = rules_of(Settings(target_medium_s=7, lead_s=2, tick_s=0.5, lease_s=3, window_s=0.1))
    assert rules.targets.medium_ms == 7_000
    assert (rules.times.lead_ms, rules.times.lease_ms, rules.times.gap_ms) == (2_000, 3_000, 3_000)
    assert rules.window.offline_ms == 100


def test_limits_and_policy_are_chosen_by_settings() -> None:
    rules = rules_of(Settings(limit_low=5, policy="load-score"))
    assert rules.limits[Priority.LOW] == 5
    assert isinstance(rules.policy, LoadScore)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SetupError, match=r"cache-aware, kv-cost, .*, predictive, round-robin"):
        rules_of(Settings(policy="random"))


def test_an_outage_is_said_once_however_many_notice() -> None:
    with capture_logs() as lines:
        outage = Outage(get_logger("test"))
        outage.over()
        for _ in range(3):
            outage.began(OSError("gone"))
        for _ in range(3):
            outage.over()
    assert [line["event"] for line in lines] == ["redis_away", "redis_back"]


def test_an_outage_that_lasts_calls_for_a_hand_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(outage_module, "time", clock)
    with capture_logs() as lines:
        outage = Outage(get_logger("test"))
        for pause_s in (0.0, LONG_S / 2, LONG_S, 1.0):
            clock.advance(pause_s)
            outage.began(OSError("gone"))
        outage.over()
    told = [(line["event"], line["log_level"]) for line in lines]
    assert told == [("redis_away", "warning"), ("redis_still_away", "error"), ("redis_back", "info")]
    assert (lines[1]["for_s"], lines[2]["after_s"]) == (45, 46.0)


def test_pauses_grow_to_a_limit_and_begin_anew_after_success() -> None:
    backoff = Backoff()
    pauses = [backoff.pause_s() for _ in range(8)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S
    backoff.reset()
    assert backoff.pause_s() == pauses[0]
