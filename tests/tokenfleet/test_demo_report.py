"""The demo's figures."""

import io

from rich.console import Console

from protocol.states import Priority
from tokenfleet.demo.report import DemoReport, JobTimes, as_json, as_tables


def a_report(rows_out: int = 2, answer: str = "It is Paris.") -> DemoReport:
    jobs = [
        JobTimes(Priority.MEDIUM, 10, 100, "worker-1"),
        JobTimes(Priority.MEDIUM, 30, 300, "worker-2"),
        JobTimes(Priority.HIGH, 5, 50, "worker-1"),
    ]
    return DemoReport(2, rows_out, 0, 90, 3.0, jobs, answer, overtook=7, expected="Paris")


def test_json_has_all_figures() -> None:
    assert as_json(a_report()) == {
        "rows_in": 2,
        "rows_out": 2,
        "rows_failed": 0,
        "tokens_out": 90,
        "tokens_per_s": 30.0,
        "ttft_ms": {"high": {"p50": 50, "p99": 50}, "medium": {"p50": 100, "p99": 300}},
        "queue_ms": {"high": {"p50": 5, "p99": 5}, "medium": {"p50": 10, "p99": 30}},
        "jobs_by_worker": {"worker-1": 2, "worker-2": 1},
        "answer": "It is Paris.",
        "overtook": 7,
    }


def test_the_tables_say_the_same() -> None:
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(as_tables(a_report()))
    text = console.export_text()
    for part in ("rows in", "30.0", "high", "medium", "300 ms", "worker-1"):
        assert part in text


def test_problems_are_named() -> None:
    assert a_report().problems == []
    assert a_report(rows_out=1, answer="Lyon").problems == [
        "1 rows have no output",
        "the chat's answer does not name Paris",
    ]
