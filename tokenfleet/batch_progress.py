"""How a batch shows itself: a bar in a terminal, plain lines elsewhere, a table at the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from producer.batch import BatchSummary
from producer.batch import Progress as BatchProgress
from tokenfleet.cli.durations import in_words

PLAIN_EVERY_S = 5.0
Show = Callable[[BatchProgress], None]


@contextmanager
def progress_on(console: Console) -> Iterator[Show]:
    """What to call with each news of the batch."""
    if not console.is_terminal:
        yield _PlainLines(console).show
        return
    columns = (
        TextColumn("rows"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]:.0f} tokens/s  {task.fields[failed]} failed  ETA"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("rows", total=None, speed=0.0, failed=0)

        def show(news: BatchProgress) -> None:
            total = news.rows_total
            bar.update(task, completed=news.rows_out, total=total, speed=speed(news), failed=news.rows_failed)

        yield show


class _PlainLines:
    """A line each few seconds, and one for the last row."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_s = 0.0

    def show(self, news: BatchProgress) -> None:
        if news.seconds >= self._next_s or news.rows_out == news.rows_total:
            self._next_s = news.seconds + PLAIN_EVERY_S
            self._console.print(plain_line(news))


def speed(news: BatchProgress) -> float:
    """Output tokens a second since the beginning."""
    return news.tokens_out / news.seconds if news.seconds > 0 else 0.0


def plain_line(news: BatchProgress) -> str:
    """Rows done, failures, speed, and when it ends at this pace."""
    line = f"rows {news.rows_out}/{news.rows_total or '?'}, {news.rows_failed} failed, {speed(news):.0f} tokens/s"
    if news.rows_total and 0 < news.rows_out < news.rows_total:
        left_s = news.seconds / news.rows_out * (news.rows_total - news.rows_out)
        return f"{line}, {in_words(left_s)} left"
    return f"{line}, {in_words(news.seconds)} so far"


def as_table(summary: BatchSummary) -> Table:
    """The figures at the end."""
    table = Table(title=summary.batch_id, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("rows in / out / failed", f"{summary.rows_in} / {summary.rows_out} / {summary.rows_failed}")
    table.add_row("tokens in / out", f"{summary.tokens_in:,} / {summary.tokens_out:,}")
    table.add_row("time", in_words(summary.seconds))
    table.add_row("tokens/s", f"{summary.tokens_per_s:,.1f}")
    for name, waits in (("queue wait", summary.queue_ms), ("first token after", summary.ttft_ms)):
        if len(waits):
            table.add_row(f"{name}, p50 / p99", f"{waits.percentile(0.5):,} / {waits.percentile(0.99):,} ms")
    for worker, jobs in sorted(summary.jobs_by_worker.items()):
        table.add_row(f"jobs of {worker}", str(jobs))
    return table
