"""What the dispatcher notices about workers, with no Redis in it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from protocol.log import get_logger
from protocol.messages import LoadReport
from protocol.watch import WorkerNow
from scheduler.books import Books
from scheduler.policy.ledger import Sent
from scheduler.read import Snapshot
from scheduler.roster import Roster

NOW_MS = 1_000_000
LEASE_MS = 10_000
IDLE = WorkerNow("gpu-0", "active", 4, held=0, solo=False, report_ms=NOW_MS, report=LoadReport(taken=0))


@pytest.fixture
def lines() -> Iterator[list[EventDict]]:
    with capture_logs() as captured:
        yield captured


class Watch:
    """A roster that is shown one worker, w1, again and again."""

    def __init__(self) -> None:
        self.books = Books()
        self.ledger = self.books.ledger
        self.roster = Roster(self.books, get_logger("test"), pass_over_ms=400, silence_ms=2_000)

    def see(self, now: WorkerNow | None, at_ms: float = NOW_MS, lease_ms: int | None = NOW_MS + LEASE_MS) -> Snapshot:
        leases = {} if lease_ms is None else {"w1": lease_ms}
        workers = {} if now is None else {"w1": now}
        snapshot = Snapshot(at_ms, ((), (), ()), more=False, unreadable=(), leases=leases, workers=workers)
        self.views = self.roster.update(snapshot)
        return snapshot


def events(lines: list[EventDict]) -> list[str]:
    return [line["event"] for line in lines]


def test_a_worker_joins_and_leaves(lines: list[EventDict]) -> None:
    watch = Watch()
    watch.see(IDLE)
    assert [(view.id, view.label, view.active, view.slots) for view in watch.views] == [("w1", "gpu-0", True, 4)]
    watch.see(IDLE, lease_ms=0)  # it hands its jobs back
    assert watch.views == ()
    watch.see(None, lease_ms=None)
    assert events(lines) == ["worker_joined", "worker_left"]


def test_a_worker_without_slots_takes_nothing() -> None:
    watch = Watch()
    watch.see(replace(IDLE, slots=0))
    assert [view.active for view in watch.views] == [False]
    watch.see(IDLE)
    assert [view.active for view in watch.views] == [True]


def test_models_and_prefixes_are_passed_on() -> None:
    watch = Watch()
    watch.books.prefix_map.told("w1", frozenset({"a"}), NOW_MS)
    watch.books.prefix_map.assigned("w1", ("b",), NOW_MS)
    watch.see(replace(IDLE, models=frozenset({"m"})))
    (view,) = watch.views
    assert view.models == {"m"}
    assert view.prefixes == {"a"}
    assert "b" in view.sent


def test_speeds_are_learned_from_first_tokens_that_reports_tell() -> None:
    watch = Watch()
    watch.see(IDLE)
    for attempt in range(1, 101):
        watch.books.speeds.assigned("w1", attempt, predicted_ms=100, pending_ms=0)
        report = LoadReport(taken=attempt, firsts=((attempt, 400),))
        watch.see(replace(IDLE, report_ms=NOW_MS + attempt, report=report))
    assert watch.views[0].speed > 2


def test_all_is_forgotten_with_the_worker() -> None:
    watch = Watch()
    watch.see(IDLE)
    watch.books.prefix_map.told("w1", frozenset({"a"}), NOW_MS)
    watch.ledger.assigned("w1", 7, Sent(NOW_MS, 10, 0.2, 100))
    watch.see(None, lease_ms=None)
    assert watch.books.prefix_map.told_by("w1") == frozenset()
    assert len(watch.ledger) == 0


@pytest.mark.parametrize("state", ["starting", "loading", "warm", "asleep", "unhealthy", "draining", "leaving"])
def test_only_an_active_worker_takes_jobs(state: str) -> None:
    watch = Watch()
    watch.see(replace(IDLE, state=state))
    assert not watch.views[0].active


def test_a_worker_that_lapsed_is_reclaimed(lines: list[EventDict]) -> None:
    watch = Watch()
    watch.see(IDLE)
    later = NOW_MS + LEASE_MS + 1
    watch.see(None, at_ms=later, lease_ms=None)
    assert lines[-1]["event"] == "worker_reclaimed"
    assert lines[-1]["log_level"] == "warning"


def test_a_worker_that_lapsed_is_not_in_view_and_being_reclaimed_until_it_is_gone() -> None:
    watch = Watch()
    assert not watch.roster.reclaiming(watch.see(IDLE))
    later = NOW_MS + LEASE_MS + 1
    assert watch.roster.reclaiming(watch.see(IDLE, at_ms=later, lease_ms=0))
    assert watch.views == ()


def test_one_that_leaves_is_not_being_reclaimed() -> None:
    watch = Watch()
    watch.see(IDLE)
    assert not watch.roster.reclaiming(watch.see(IDLE, lease_ms=0))


def test_silence_is_said_once_until_the_next_report(lines: list[EventDict]) -> None:
    watch = Watch()
    for at_ms in (NOW_MS, NOW_MS + 2_001, NOW_MS + 2_500):
        watch.see(IDLE, at_ms)
    watch.see(replace(IDLE, report_ms=NOW_MS + 3_000), NOW_MS + 3_000)
    watch.see(replace(IDLE, report_ms=NOW_MS + 3_000), NOW_MS + 6_000)
    assert events(lines) == ["worker_joined", "reports_stopped", "reports_stopped"]


def test_a_worker_that_is_quiet_gets_nothing_while_another_is_heard() -> None:
    roster = Roster(Books(), get_logger("test"), pass_over_ms=400, silence_ms=2_000)
    quiet, heard = replace(IDLE, report_ms=NOW_MS - 401), replace(IDLE, report_ms=NOW_MS - 400)

    def open_to_jobs(workers: dict[str, WorkerNow]) -> set[str]:
        leases = dict.fromkeys(workers, NOW_MS + LEASE_MS)
        snapshot = Snapshot(NOW_MS, ((), (), ()), more=False, unreadable=(), leases=leases, workers=workers)
        return {view.id for view in roster.update(snapshot) if view.active}

    assert open_to_jobs({"w1": quiet, "w2": heard}) == {"w2"}
    assert open_to_jobs({"w1": quiet, "w2": quiet}) == {"w1", "w2"}
    assert open_to_jobs({"w1": quiet, "w2": replace(heard, state="draining")}) == {"w1"}


def test_what_was_assigned_is_unseen_until_a_report_contains_it() -> None:
    watch = Watch()
    watch.see(IDLE)
    watch.ledger.assigned("w1", 7, Sent(NOW_MS, 10, 0.2, 100))
    busy = replace(IDLE, held=1)
    watch.see(busy)
    assert watch.views[0].unseen.jobs == 1
    watch.see(replace(busy, report_ms=NOW_MS + 500, report=LoadReport(running=1, taken=7)))
    assert watch.views[0].unseen.jobs == 0
    assert watch.views[0].report.running == 1


def test_a_worker_that_holds_nothing_has_nothing_unseen() -> None:
    watch = Watch()
    watch.see(IDLE)
    watch.ledger.assigned("w1", 7, Sent(NOW_MS, 10, 0.2, 100))
    watch.see(IDLE)
    assert watch.views[0].unseen.jobs == 0


def test_an_unreadable_report_leaves_the_last_one(lines: list[EventDict]) -> None:
    watch = Watch()
    watch.see(replace(IDLE, report=LoadReport(running=2)))
    for later in (500, 1_000):
        watch.see(replace(IDLE, report=None, report_ms=NOW_MS + later))
    assert watch.views[0].report.running == 2
    assert events(lines) == ["worker_joined", "report_unreadable"]


def test_a_worker_that_stays_unreadable_is_said_once(lines: list[EventDict]) -> None:
    watch = Watch()
    for _ in range(4):
        watch.see(None)
    assert events(lines) == ["worker_unreadable"]
