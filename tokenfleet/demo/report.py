"""What the demo found out, as a table for people and one JSON object for machines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from producer.batch import Waits
from protocol.states import Priority
from protocol.wire import JsonObject
from tokenfleet.plain import plain


@dataclass(frozen=True, slots=True)
class JobTimes:
    """How long one job waited, in ms: in its lane, and from submit to its first token; and who ran it."""

    priority: Priority
    queue_ms: int | None
    ttft_ms: int | None
    worker: str


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The demo's figures."""

    rows_in: int
    rows_out: int
    rows_failed: int
    tokens_out: int
    seconds: float
    jobs: Sequence[JobTimes]
    answer: str
    overtook: int
    """Batch rows that were queued before the chat came and still queued when its first token was there."""
    expected: str = ""
    """What the answer must hold."""

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of all jobs over the time from the batch's start to its end."""
        return self.tokens_out / self.seconds if self.seconds > 0 else 0.0

    @property
    def problems(self) -> list[str]:
        """Why the demo did not show what it should; empty when it did."""
        found = []
        if self.rows_out != self.rows_in:
            found.append(f"{self.rows_in - self.rows_out} rows have no output")
        if self.rows_failed:
            found.append(f"{self.rows_failed} rows failed")
        if self.expected not in self.answer:
            found.append(f"the chat's answer does not name {self.expected}")
        return found


def as_json(report: DemoReport) -> JsonObject:
    """The figures for machines; times in ms, by priority."""
    by_priority = _by_priority(report.jobs)
    return {
        "rows_in": report.rows_in,
        "rows_out": report.rows_out,
        "rows_failed": report.rows_failed,
        "tokens_out": report.tokens_out,
        "tokens_per_s": round(report.tokens_per_s, 1),
        "ttft_ms": {str(name): _waited(job.ttft_ms for job in jobs) for name, jobs in by_priority.items()},
        "queue_ms": {str(name): _waited(job.queue_ms for job in jobs) for name, jobs in by_priority.items()},
        "jobs_by_worker": dict(_jobs_by_worker(report.jobs)),
        "answer": report.answer,
        "overtook": report.overtook,
    }


def as_tables(report: DemoReport) -> RenderableType:
    """The figures for people."""
    return Group(_rows(report), Text(), _waits(report.jobs), Text(), _workers(report.jobs))


def _rows(report: DemoReport) -> Table:
    table = _table(
        "The batch and the chat", "rows in", "rows out", "failed", "tokens out", "tokens/s", "rows overtaken"
    )
    figures = (report.rows_in, report.rows_out, report.rows_failed, report.tokens_out)
    table.add_row(*map(str, figures), f"{report.tokens_per_s:.1f}", str(report.overtook))
    return table


def _waits(jobs: Sequence[JobTimes]) -> Table:
    headings = ("jobs", "queue wait p50", "p99", "first token p50", "p99")
    table = _table("How long they waited", "priority", *headings)
    for name, members in _by_priority(jobs).items():
        queue, ttft = _waited(job.queue_ms for job in members), _waited(job.ttft_ms for job in members)
        times = (*queue.values(), *ttft.values())
        table.add_row(str(name), str(len(members)), *(f"{time:,} ms" for time in times))
    return table


def _workers(jobs: Sequence[JobTimes]) -> Table:
    table = _table("Who ran them", "worker", "jobs")
    for worker, count in _jobs_by_worker(jobs).items():
        table.add_row(plain(worker), str(count))
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _by_priority(jobs: Sequence[JobTimes]) -> Mapping[Priority, list[JobTimes]]:
    found = {name: [job for job in jobs if job.priority is name] for name in Priority}
    return {name: members for name, members in found.items() if members}


def _waited(values: Iterable[int | None]) -> dict[str, int]:
    """p50 and p99 in ms."""
    waits = Waits()
    for value in values:
        waits.add(value)
    return {"p50": waits.percentile(0.5), "p99": waits.percentile(0.99)}


def _jobs_by_worker(jobs: Sequence[JobTimes]) -> Mapping[str, int]:
    names = sorted({job.worker for job in jobs})
    return {name: sum(job.worker == name for job in jobs) for name in names}
