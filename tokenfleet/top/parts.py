"""The parts of the screen, each with the number of lines that it takes: a shard with its workers, the batches. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from producer.overview import BatchView, LaneView, ShardView, WorkerView
from protocol.batches import BatchStatus
from tokenfleet.cli.durations import in_words
from tokenfleet.cli.workers_view import STATE_STYLES
from tokenfleet.plain import plain
from tokenfleet.terminal import harmless

T = TypeVar("T")
BAR_WIDTH = 10
FILLED, EMPTY = "█", "░"
FULL = 0.9
"""At this load score a worker counts as full."""
STALE_MS = 3_000
"""A worker reports at least five times a second: the age of an older report is told."""
WIDE = 110
"""From so many columns on there is room for a job of each worker, and for whole ids of batches."""
ID_SHOWN = 14
LEAST_LINES = 5
"""A shard's title, its lanes, the headings, one worker, and how many more there are."""
_RIGHT = frozenset({"jobs", "run", "wait", "kv", "tok/s", "rows", "failed", "left"})


@dataclass(frozen=True, slots=True)
class Part:
    """What is drawn, and how many lines that takes."""

    drawn: Sequence[RenderableType]
    lines: int


def line(text: Text) -> Text:
    """One that is cut rather than folded."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def shard_part(shard: ShardView, room: int, width: int) -> Part:
    """A shard in at most `room` lines, `LEAST_LINES` or more: workers that are not active come first."""
    aside = f"   {shard.policy or 'no leader'}   {shard.due:,} delayed   {shard.dead:,} dead"
    title = Text.assemble((str(shard.shard), "bold"), f"  {harmless(', '.join(shard.models))}", (aside, "dim"))
    lanes = Text("   ").join(map(_lane, shard.lanes))
    head: list[RenderableType] = [line(title), line(Text.assemble((" lanes  ", "dim"), lanes))]
    if not shard.workers:
        return Part([*head, line(Text(" no workers: queued jobs wait until one joins", "yellow"))], 3)
    ranked = sorted(shard.workers, key=lambda worker: (worker.state == "active", worker.label, worker.id))
    shown, more = _fitting(ranked, room - 3, "workers")
    columns = ["worker", "state", "load", "jobs", "run", "wait", "kv", "tok/s", "gpu"]
    table = _table(*columns, *(["a job"] if width >= WIDE else []))
    for worker in shown:
        table.add_row(*_worker(worker), *(_job(worker) if width >= WIDE else []))
    return Part([*head, table, *more], 3 + len(shown) + len(more))


def batches_part(batches: Sequence[BatchView], room: int, width: int) -> Part:
    """The newest batches in at most `room` lines, 3 or more; none where there are none."""
    if not batches:
        return Part([], 0)
    shown, more = _fitting(batches, room - 1, "batches")
    table = _table("batch", "state", "done", "rows", "failed", "left")
    for batch in shown:
        table.add_row(*_batch(batch, width))
    return Part([table, *more], 1 + len(shown) + len(more))


def _fitting(items: Sequence[T], room: int, what: str) -> tuple[Sequence[T], list[Text]]:
    """Those that fit, and a line that tells of the others."""
    if len(items) <= room:
        return items, []
    shown = items[: max(1, room - 1)]
    return shown, [line(Text(f" … and {len(items) - len(shown):,} more {what}", "dim"))]


def _lane(lane: LaneView) -> Text:
    wait = f" for {in_words(lane.oldest_wait_ms / 1000)}" if lane.depth else ""
    return Text.assemble(f"{lane.priority} ", (f"{lane.depth:,}", "bold" if lane.depth else "dim"), (wait, "dim"))


def _worker(worker: WorkerView) -> list[RenderableType]:
    state = Text(worker.state, STATE_STYLES.get(worker.state, "red"))
    if worker.report_age_ms > STALE_MS:
        state.append(f" {in_words(worker.report_age_ms / 1000)}", "red")
    return [
        plain(worker.label),
        state,
        bar(worker.load_score, "red" if worker.load_score >= FULL else "green"),
        f"{worker.held}/{worker.slots}",
        f"{worker.running}/{worker.capacity}",
        str(worker.waiting),
        "-" if worker.kv is None else f"{worker.kv:.0%}",
        "-" if worker.tokens_per_s is None else f"{worker.tokens_per_s:,.0f}",
        _device(worker),
    ]


def _device(worker: WorkerView) -> str:
    use = "" if worker.device_utilisation is None else f"{worker.device_utilisation:.0%}"
    heat = "" if worker.device_temperature_c is None else f"{worker.device_temperature_c:.0f}°C"
    return " ".join(part for part in (use, heat) if part) or "-"


def _job(worker: WorkerView) -> list[RenderableType]:
    return [plain(str(worker.jobs[0])) if worker.jobs else "-"]


def _batch(batch: BatchView, width: int) -> list[RenderableType]:
    done = batch.completed + batch.failed
    ended_badly = batch.status in (BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLED)
    return [
        plain(batch.id if width >= WIDE else batch.id[:ID_SHOWN]),
        str(batch.status),
        bar(done / batch.rows if batch.rows else 0.0, "red" if ended_badly else "green"),
        f"{done:,}/{batch.rows:,}" if batch.rows else "-",
        Text(f"{batch.failed:,}", "red" if batch.failed else "dim"),
        "-" if batch.left_s is None else in_words(batch.left_s),
    ]


def bar(share: float, colour: str) -> Text:
    """A share in [0, 1] as a bar and a number."""
    filled = round(min(1.0, share) * BAR_WIDTH)
    return Text.assemble((FILLED * filled, colour), (EMPTY * (BAR_WIDTH - filled), "dim"), f" {share:.2f}")


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for heading in headings:
        table.add_column(heading, no_wrap=True, justify="right" if heading in _RIGHT else "left")
    return table
