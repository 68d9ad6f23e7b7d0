"""What is told of a batch while it runs: its pace, plain lines, and a warning as soon as the deadline looks missed."""

import io
from dataclasses import dataclass, field
from datetime import datetime

import pytest
from rich.console import Console

from producer.batch import BatchSummary, Progress
from producer.batch.pace import Pace
from producer.batch.progress import Teller, Watcher
from producer.batch.records import Status, Todo
from producer.batch.run import ignore
from producer.batch.tally import FinishedRow
from producer.batch.window import Window
from protocol.batches import BatchCounts, BatchName, BatchRecord, BatchSpec, BatchStatus, BatchUsage
from tokenfleet.batch_progress import CheckedLines, as_panel, as_table, plain_line, progress_on
from tokenfleet.cli.batch.view import progress_line

NOW = datetime(2026, 1, 2, 3, 4, 5).astimezone()


@dataclass
class Told:
    """A batch of 100 rows that has 60 s, on a clock of its own, with a log instead of a terminal."""

    now_s: float = 0.0
    news: list[Progress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.summary, self.text = BatchSummary("b", rows_in=100), io.StringIO()
        self.console = Console(file=self.text, width=200)
        self.teller = Teller(self.summary, Window(8), 60.0, lambda: self.now_s, self.news.append, ignore)

    def pass_s(self, seconds: int, rows_each: int) -> None:
        for _ in range(seconds):
            self.now_s += 1
            for _ in range(rows_each):
                self.summary.add(FinishedRow(1, failed=False, tokens_out=3))
            self.teller.tell(())

    def warnings(self) -> int:
        with progress_on(self.console) as show:
            for one in self.news:
                show(one)
        return self.text.getvalue().count("warning: the deadline looks missed")


def test_nobody_is_warned_of_a_batch_that_is_in_time() -> None:
    told = Told()
    told.pass_s(30, rows_each=2)
    assert told.warnings() == 0


def test_lines_that_are_no_requests_are_no_speed() -> None:
    told = Told()
    told.summary.rows_before = told.summary.rows_out = 10
    for number in range(50):
        told.summary.add(FinishedRow(number, failed=True, bad=True))
    told.pass_s(10, rows_each=2)
    assert told.news[-1].rows_per_s == told.summary.rows_per_s == pytest.approx(2.0)
    assert told.news[-1].rows_out == 80


def test_no_row_runs_once_all_are_done() -> None:
    """It is written and told before it leaves the window."""
    told, window = Told(), Window(100)
    told.teller = Teller(told.summary, window, None, lambda: told.now_s, told.news.append, ignore)
    for number in range(100):
        window.add(f"b-{number}", Todo(number, number, 0, 0, None, 0, None, False, 0, Status.WAITING))
    told.pass_s(10, rows_each=10)
    assert [news.rows_in_redis for news in told.news[-2:]] == [10, 0]


def test_a_slow_batch_is_warned_of_once_and_early() -> None:
    told = Told()
    told.pass_s(20, rows_each=1)
    assert [news.left_s for news in told.news[:9]] == [None] * 9
    assert told.news[9].late_s == pytest.approx(40)
    assert told.warnings() == 1


def test_a_batch_that_stands_still_is_warned_of() -> None:
    told = Told()
    told.pass_s(10, rows_each=3)
    told.pass_s(25, rows_each=0)
    assert told.warnings() == 1


def test_the_pace_is_that_of_the_last_half_minute() -> None:
    pace = Pace(0.0)
    assert pace.left_s(5) is None
    for second in range(1, 51):
        pace.note(float(second), 10 * min(second, 10) + second, 0)
    assert pace.left_s(10) == pytest.approx(10)
    assert pace.rows_per_s == pytest.approx(1.0)


def record(done: int, tokens: int) -> BatchRecord:
    """A submitted batch of 100 rows that was created at 1,000 s and has 60 s."""
    return BatchRecord(
        name=BatchName("default", "batch_a"),
        spec=BatchSpec(input_file_id="file-a", endpoint="/v1/chat/completions", window_s=60.0),
        status=BatchStatus.IN_PROGRESS,
        times_ms={BatchStatus.VALIDATING: 1_000_000},
        counts=BatchCounts(total=100, completed=done),
        usage=BatchUsage(output_tokens=tokens),
    )


def test_a_submitted_batch_that_is_watched_tells_the_same_pace_and_warns_as_early() -> None:
    told = Told()
    watcher = Watcher(record(30, 90), 1000.0)
    told.news = [watcher.look(record(30 + second, 90 + 3 * second), 1000.0 + second) for second in range(31)]
    line = progress_line(record(40, 120), told.news[10])
    assert line.startswith("in_progress: rows 40/100, 0 failed, 1.0 rows/s, 3 tokens/s, 60 s left, done at ")
    assert told.news[9].late_s is None
    assert told.news[10].late_s == pytest.approx(10)
    assert told.warnings() == 1


def test_slow_rows_that_end_in_waves_make_no_end_that_jumps() -> None:
    """Four rows at a time, in 22 s: half a minute has four of them, or eight."""
    pace, left = Pace(0.0), list[float]()
    for second in range(1, 600):
        pace.note(second, second // 22 * 4, 0)
        told = pace.left_s(110)
        if told is not None and second > 150:
            left.append(told)
    assert min(left) > 500
    assert max(left) < 750  # 605 s; it was told as 410 to 820


def test_a_batch_that_stands_still_soon_has_no_end() -> None:
    pace = Pace(0.0)
    for second in range(1, 400):
        pace.note(second, min(second, 100), 0)
    assert pace.left_s(10) is None
    assert pace.rows_per_s == 0


def test_who_joins_late_reads_the_average_until_enough_was_seen() -> None:
    """Rows ran for 100 s, and then stand still."""
    late = record(40, 200).model_copy(
        update={"times_ms": {BatchStatus.VALIDATING: 0, BatchStatus.IN_PROGRESS: 900_000}}
    )
    watcher = Watcher(late, 1000.0)
    first, _, then = (watcher.look(late, 1000.0 + second) for second in (0, 4, 5))
    assert plain_line(first, NOW) == "rows 40/100, 0 failed, 0.4 rows/s, 2 tokens/s, 100 s so far"
    assert (then.rows_per_s, then.tokens_per_s, then.seconds) == (0, 0, 105)


def test_the_table_says_which_figures_are_of_this_run_alone() -> None:
    summary = BatchSummary("b", rows_in=3, tokens_cached=7)
    summary.add(FinishedRow(1, failed=False, queue_ms=1, ttft_ms=2, total_ms=3))
    own = ("tokens in that were cached", "time", "rows/s", "tokens/s", "whole")
    for before in (0, 1):
        summary.rows_before = before
        console = Console(file=io.StringIO(), width=120, record=True)
        console.print(as_table(summary))
        text = console.export_text()
        assert [name for name in own if f"{name}, this run" in text] == list(own) * before
        assert text.count("this run") == len(own) * before


def test_a_line_and_the_panel_say_what_is_done_how_fast_and_when_it_ends() -> None:
    told = Told()
    told.pass_s(10, rows_each=2)
    line = plain_line(told.news[-1], NOW)
    assert line == "rows 20/100, 0 failed, 2.0 rows/s, 6 tokens/s, 40 s left, done at 03:04:45"
    told.console.print(as_panel(told.news[-1], NOW))
    for word in ("20/100", "20%", "deduped", "cached", "running", "tokens in", "40 s left"):
        assert word in told.text.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_that_are_checked_are_told_each_few_seconds(*, terminal: bool) -> None:
    text, now_s = io.StringIO(), [0.0]
    checked = CheckedLines(Console(file=text, force_terminal=terminal), lambda: now_s[0])
    assert checked.line() == ""
    for second in range(12):
        now_s[0] = float(second)
        checked(second * 1_000)
    assert text.getvalue() == ("" if terminal else "checked 5000 lines\nchecked 10000 lines\n")
    assert checked.line() == "checked 11000 lines"
