"""The state of a fleet as people and machines see it."""

import io
from typing import get_args

import pytest
from rich.console import Console

from producer.status import FleetStatus, LaneStatus, ShardStatus
from protocol.handle import Shard
from protocol.messages import LoadReport, WorkerRecord
from protocol.states import Priority, WorkerState
from tokenfleet.cli.status_view import as_json, as_tables

NOW_MS = 1_000_000
SERVED = (("worker-1", ("m",)), ("worker-2", ("n", "m")))


def a_worker(label: str = "worker-1", lease_ms: int = NOW_MS + 9_000, score: float = 0.5) -> WorkerRecord:
    report = LoadReport(load_score=score, running=3, waiting=1, capacity=4, kv_used_tokens=25, kv_total_tokens=100)
    return WorkerRecord(
        id="w", label=label, state="active", slots=4, held=3, lease_ms=lease_ms, report_ms=NOW_MS - 400, report=report
    )


def a_status(*workers: WorkerRecord) -> FleetStatus:
    lanes = (
        LaneStatus(Priority.HIGH, 0, 0),
        LaneStatus(Priority.MEDIUM, 1200, 180_000),
        LaneStatus(Priority.LOW, 1, 500),
    )
    return FleetStatus(NOW_MS, (ShardStatus(Shard("p"), ("m", "n"), lanes, due=2, dead=1, workers=workers),))


def shown(status: FleetStatus, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(as_tables(status))
    return console.export_text()


@pytest.mark.parametrize("width", [80, 120])
def test_lanes_and_workers_stand_in_tables(width: int) -> None:
    text = shown(a_status(a_worker()), width)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "p.0 m, n 2 delayed 1 set aside" in lines
    assert "high 0 -" in lines
    assert "medium 1,200 3 min" in lines
    assert "low 1 500 ms" in lines
    assert "worker-1 active 3/4 ██████░░░░░░ 0.50 3/4 1 25% 400 ms" in lines


def test_a_lease_that_is_over_is_shown_as_lost() -> None:
    status = a_status(a_worker(lease_ms=NOW_MS - 1))
    assert "lost" in shown(status)
    assert as_json(status)["shards"][0]["workers"][0]["state"] == "lost"


def test_a_label_can_not_act_on_the_terminal() -> None:
    assert "\x1b" not in shown(a_status(a_worker(label="\x1b[2J")))


def test_an_empty_fleet_says_what_to_do() -> None:
    assert "tokenfleet worker --model NAME" in shown(FleetStatus(NOW_MS, ()))
    assert "no workers" in shown(a_status())


def test_json_has_the_same() -> None:
    status = as_json(a_status(a_worker()))
    shard = status["shards"][0]
    assert status["now_ms"] == NOW_MS
    assert shard["lanes"]["medium"] == {"depth": 1200, "oldest_wait_ms": 180_000}
    assert (shard["shard"], shard["due"], shard["dead"]) == ("p.0", 2, 1)
    assert shard["workers"][0]["report"]["load_score"] == 0.5


@pytest.mark.parametrize("state", get_args(WorkerState))
def test_every_state_is_shown(state: WorkerState) -> None:
    worker = a_worker().model_copy(update={"state": state})
    assert state in shown(a_status(worker))


def test_a_worker_with_fewer_models_is_named() -> None:
    some, all_of_them = (a_worker(label).model_copy(update={"models": models}) for label, models in SERVED)
    text = shown(a_status(some, all_of_them))
    assert "worker-1 serves m only" in text
    assert "worker-2 serves" not in text
