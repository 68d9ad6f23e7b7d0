"""How a batch shows itself: a panel in a terminal, plain lines elsewhere, a table at the end."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import datetime, timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from producer.batch import BatchEnd, BatchSummary
from producer.batch import Progress as BatchProgress
from tokenfleet.cli.durations import in_words, speed
from tokenfleet.plain import plain

PLAIN_EVERY_S = 5.0
BAR_WIDTH = 40
Show = Callable[[BatchProgress], None]


class CheckedLines:
    """Tells how many lines of an input were checked: a line each few seconds, in a terminal drawn in place."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        """Tell it there; `clock` gives seconds."""
        self._console, self._clock = console, clock
        self._lines, self._next_s = 0, clock() + PLAIN_EVERY_S

    def __call__(self, lines: int) -> None:
        """So many by now; from any thread."""
        self._lines = lines
        if not self._console.is_terminal and self._clock() >= self._next_s:
            self._next_s = self._clock() + PLAIN_EVERY_S
            self._console.print(self.line(), soft_wrap=True)

    def line(self) -> str:
        """Empty before there are any."""
        return f"checked {self._lines} lines" if self._lines else ""


@contextmanager
def checking() -> Iterator[CheckedLines]:
    """What to call with how many lines were checked; on stderr, until the block ends."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    checked = CheckedLines(console)
    with Live(get_renderable=checked.line, console=console, transient=True) if console.is_terminal else nullcontext():
        yield checked


@contextmanager
def progress_on(console: Console, checked: CheckedLines | None = None) -> Iterator[Show]:
    """What to call with each news of the batch; until then a terminal shows how many lines were checked."""
    warning = LateWarning(console)
    with ExitStack() as stack:
        if console.is_terminal:
            drawn = _Drawn(checked or CheckedLines(console))
            stack.enter_context(Live(get_renderable=drawn.panel, console=console, transient=True))
            show = drawn.show
        else:
            show = _PlainLines(console).show

        def both(news: BatchProgress) -> None:
            show(news)
            warning.look(news)

        yield both


class _Drawn:
    """The panel, made when it is drawn, a few times a second, and not each time rows end."""

    def __init__(self, checked: CheckedLines) -> None:
        self._news: BatchProgress | None = None
        self._checked = checked

    def show(self, news: BatchProgress) -> None:
        self._news = news

    def panel(self) -> RenderableType:
        return as_panel(self._news, datetime.now().astimezone()) if self._news else self._checked.line()


class LateWarning:
    """Says once that the deadline looks missed, and again when it did not meanwhile."""

    def __init__(self, console: Console) -> None:
        """Say it there."""
        self._console = console
        self._late = False

    def look(self, news: BatchProgress) -> None:
        """With each news."""
        late = news.late_s is not None
        if news.late_s is not None and not self._late:
            left = in_words(news.left_s or 0)
            what = f"{left} of work are left at this pace: {in_words(news.late_s)} more than until the deadline"
            self._console.print(f"warning: the deadline looks missed: {what}", style="yellow", soft_wrap=True)
        self._late = late


class _PlainLines:
    """A line each few seconds, and one for the last row."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_s = 0.0

    def show(self, news: BatchProgress) -> None:
        if news.seconds >= self._next_s or news.rows_out == news.rows_total:
            self._next_s = news.seconds + PLAIN_EVERY_S
            self._console.print(plain_line(news, datetime.now().astimezone()), soft_wrap=True)


def plain_line(news: BatchProgress, now: datetime) -> str:
    """Rows done, failures, speed, and when it ends at this pace."""
    parts = [f"rows {news.rows_out}/{news.rows_total}", f"{news.rows_failed} failed"]
    if news.rows_deduped:
        parts.append(f"{news.rows_deduped} deduped")
    parts += [f"{speed(news.rows_per_s)} rows/s", f"{news.tokens_per_s:,.0f} tokens/s"]
    return ", ".join([*parts, _when(news, now)])


def _when(news: BatchProgress, now: datetime) -> str:
    if news.left_s is None or news.rows_out == news.rows_total:
        return f"{in_words(news.seconds)} so far"
    return f"{in_words(news.left_s)} left, done at {_clock(now + timedelta(seconds=news.left_s), now)}"


def _clock(moment: datetime, now: datetime) -> str:
    return moment.strftime("%H:%M:%S" if moment.date() == now.date() else "%a %H:%M")


def as_panel(news: BatchProgress, now: datetime) -> RenderableType:
    """All that is known of a batch that runs."""
    share = news.rows_out / news.rows_total if news.rows_total else 1.0
    head = Table.grid(padding=(0, 2))
    head.add_row(ProgressBar(news.rows_total, news.rows_out, width=BAR_WIDTH), f"{share:.0%}", _when(news, now))
    counts = Table.grid(padding=(0, 3))
    figures = (
        ("done", f"{news.rows_out:,}/{news.rows_total:,}"),
        ("failed", f"{news.rows_failed:,}"),
        ("running", f"{news.rows_in_redis:,}"),
        ("deduped", f"{news.rows_deduped:,}"),
        ("tokens in", f"{news.tokens_in:,}"),
        ("cached", f"{news.tokens_cached:,}"),
        ("out", f"{news.tokens_out:,}"),
        ("tokens/s", f"{news.tokens_per_s:,.0f}"),
        ("rows/s", speed(news.rows_per_s)),
    )
    counts.add_row(*(name for name, _ in figures), style="dim")
    counts.add_row(*(value for _, value in figures))
    return Panel(Group(head, counts), title="batch", title_align="left", expand=False)


def as_table(summary: BatchSummary) -> RenderableType:
    """The figures at the end."""
    table = Table(
        title=plain(f"{summary.batch_id}: {summary.state}", "table.title"), title_justify="left", show_header=False
    )
    table.add_column()
    table.add_column(justify="right")
    table.add_row("rows in / out / failed", f"{summary.rows_in} / {summary.rows_out} / {summary.rows_failed}")
    if summary.rows_unfinished:
        table.add_row("rows that never ended", f"{summary.rows_unfinished}")
    mine = ""
    if summary.rows_before:
        mine = ", this run"
        table.add_row("rows of earlier runs", f"{summary.rows_before}")
    if summary.rows_deduped:
        table.add_row("rows deduped: answered by their twins", f"{summary.rows_deduped}")
    table.add_row("tokens in / out", f"{summary.tokens_in:,} / {summary.tokens_out:,}")
    if summary.tokens_cached:
        table.add_row(f"tokens in that were cached{mine}", f"{summary.tokens_cached:,}")
    table.add_row(f"time{mine}", in_words(summary.seconds))
    table.add_row(f"rows/s{mine}", speed(summary.rows_per_s))
    table.add_row(f"tokens/s{mine}", f"{summary.tokens_per_s:,.1f}")
    for worker, jobs in sorted(summary.jobs_by_worker.items()):
        table.add_row(plain(f"jobs of {worker}"), str(jobs))
    return Group(table, _waits(summary, mine)) if len(summary.total_ms) or len(summary.queue_ms) else table


def _waits(summary: BatchSummary, mine: str) -> Table:
    table = Table("ms", "p50", "p90", "p99")
    for column in table.columns[1:]:
        column.justify = "right"
    named = (("queue", summary.queue_ms), ("first token", summary.ttft_ms), (f"whole{mine}", summary.total_ms))
    for name, waits in named:
        if len(waits):
            table.add_row(name, *(f"{ms:,}" for ms in waits.as_json().values()))
    return table


def advice(summary: BatchSummary, target: str, given: str = "IN", errors: str | None = "[ERR]") -> str:
    """What can be done about rows that were not answered; empty where all were. The files are named for a shell."""
    if summary.rows_unfinished:
        more = {BatchEnd.EXPIRED: " --deadline 6h", BatchEnd.FAILED: " --max-errors N"}.get(summary.state, "")
        return f"{summary.rows_unfinished} rows never ended: the same command with --resume{more} goes on with them"
    files = " ".join(filter(None, (given, target, errors)))
    taking = f"`tokenfleet batch reconcile {files} --failed-rows FILE` takes them out"
    mend = f"{taking}: mend FILE, and run it to another output"
    failed = summary.rows_failed - summary.rows_bad
    if not failed:
        bad = summary.rows_bad
        what = "1 line is no request" if bad == 1 else f"{bad} lines are no requests"
        return f"{what}: the error lines say why; {mend}"
    rows, refused = "1 row" if failed == 1 else f"{failed} rows", min(summary.rows_refused, failed)
    if refused == failed:
        return f"{rows} failed and would fail again: their lines say why; {mend}"
    unless = f"; {refused} of them would fail again" if refused else ""
    return f"{rows} failed: `tokenfleet batch retry-failed -o {target}` runs failed rows again{unless}"
