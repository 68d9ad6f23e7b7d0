"""The state of a fleet as tables and as JSON: pure."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from producer.status import FleetStatus, LaneStatus, ShardStatus
from producer.workers import state_of
from protocol.messages import WorkerRecord
from protocol.wire import JsonObject
from tokenfleet.cli.durations import in_words
from tokenfleet.cli.workers_view import state_text
from tokenfleet.plain import plain
from tokenfleet.terminal import harmless

BAR_WIDTH = 12
FILLED, EMPTY = "█", "░"
FULL = 0.9
"""At this load score a worker counts as full."""


def as_tables(status: FleetStatus) -> RenderableType:
    """A table of lanes and one of workers for each shard."""
    if not status.shards:
        return Text("No worker ever registered a model here. Start one:\n  tokenfleet worker --model NAME --engine …")
    parts = [part for shard in status.shards for part in (_title(shard), _lanes(shard), _workers(shard, status.now_ms))]
    return Group(*parts)


def _title(shard: ShardStatus) -> Text:
    aside = f"   {shard.due} delayed   {shard.dead} set aside{_wanted(shard)}"
    return Text.assemble((str(shard.shard), "bold"), f"   {', '.join(map(harmless, shard.models))}", (aside, "dim"))


def _wanted(shard: ShardStatus) -> str:
    """How many workers the scheduler would like, where that is not what it has."""
    active = sum(worker.state == "active" for worker in shard.workers)
    wanted = shard.outlook.workers_wanted if shard.outlook else active
    return f"   {wanted} active {'worker' if wanted == 1 else 'workers'} wanted" if wanted != active else ""


def _lanes(shard: ShardStatus) -> Table:
    table = _table("lane", "queued", "oldest waits")
    for lane in shard.lanes:
        wait = in_words(lane.oldest_wait_ms / 1000) if lane.depth else "-"
        table.add_row(str(lane.priority), f"{lane.depth:,}", wait)
    return table


def _workers(shard: ShardStatus, now_ms: int) -> RenderableType:
    if not shard.workers:
        return Text("no workers: queued jobs wait until one joins\n", "yellow")
    table = _table("worker", "state", "jobs", "load", "running", "waiting", "kv", "report")
    for worker in shard.workers:
        table.add_row(*_worker(worker, now_ms))
    return Group(table, *_apart(shard))


def _apart(shard: ShardStatus) -> list[Text]:
    """The workers that do not serve all models of their shard: an adapter, say, is loaded on some only."""
    return [
        Text(f" {harmless(worker.label)} serves {harmless(', '.join(worker.models))} only", "dim")
        for worker in shard.workers
        if worker.models and set(worker.models) != set(shard.models)
    ]


def _worker(worker: WorkerRecord, now_ms: int) -> list[RenderableType]:
    report = worker.report
    return [
        plain(worker.label),
        state_text(worker, now_ms),
        f"{worker.held}/{worker.slots}",
        _bar(report.load_score, "red" if report.load_score >= FULL else "green"),
        f"{report.running}/{report.capacity}",
        str(report.waiting),
        f"{report.kv:.0%}" if report.kv_total_tokens else "-",
        in_words(max(0, now_ms - worker.report_ms) / 1000),
    ]


def _bar(share: float, colour: str) -> Text:
    filled = round(share * BAR_WIDTH)
    return Text.assemble((FILLED * filled, colour), (EMPTY * (BAR_WIDTH - filled), "dim"), f" {share:.2f}")


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def as_json(status: FleetStatus) -> JsonObject:
    """The same for machines; times in ms of Redis's clock."""
    return {"now_ms": status.now_ms, "shards": [_shard_json(shard, status.now_ms) for shard in status.shards]}


def _shard_json(shard: ShardStatus, now_ms: int) -> JsonObject:
    return {
        "shard": str(shard.shard),
        "models": list(shard.models),
        "lanes": {str(lane.priority): _lane_json(lane) for lane in shard.lanes},
        "due": shard.due,
        "dead": shard.dead,
        "workers_wanted": shard.outlook.workers_wanted if shard.outlook else None,
        "cold_start_s": shard.outlook.cold_start_s if shard.outlook else None,
        "workers": [{**w.model_dump(mode="json"), "state": state_of(w, now_ms)} for w in shard.workers],
    }


def _lane_json(lane: LaneStatus) -> JsonObject:
    return {"depth": lane.depth, "oldest_wait_ms": lane.oldest_wait_ms}
