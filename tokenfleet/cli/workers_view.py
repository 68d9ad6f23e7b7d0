"""The workers of a fleet as tables and as JSON: pure."""

from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from producer.workers import PlacedWorker, Roster, state_of
from protocol.messages import LoadReport, WorkerRecord
from protocol.wire import JsonObject
from tokenfleet.cli.durations import in_words
from tokenfleet.plain import plain

ID_SHOWN = 8
"""Characters of an id: enough to name one, and the beginning of an id names a worker."""
STATE_STYLES = {
    "active": "green",
    "warm": "cyan",
    "asleep": "cyan",
    "starting": "yellow",
    "loading": "yellow",
    "draining": "yellow",
    "leaving": "yellow",
}
"""Any other state is shown in red."""


def state_text(worker: WorkerRecord, now_ms: int) -> Text:
    """The state in its colour."""
    state = state_of(worker, now_ms)
    return Text(state, STATE_STYLES.get(state, "red"))


def as_tables(roster: Roster) -> RenderableType:
    """For each shard what its workers do now, and where their time went."""
    if not roster.workers:
        return Text("No worker is there. Start one:\n  tokenfleet worker --model NAME --engine …")
    shards = [(shard, list(placed)) for shard, placed in groupby(roster.workers, key=lambda worker: worker.shard)]
    parts = [
        part
        for shard, placed in shards
        for part in (Text(str(shard), "bold"), _doing(placed, roster.now_ms), _history(placed), Text())
    ]
    return Group(*parts)


def _doing(placed: list[PlacedWorker], now_ms: int) -> Table:
    table = _table("worker", "id", "state", "jobs", "run", "wait", "kv tokens", "prefix", "device")
    for worker in (entry.record for entry in placed):
        report = worker.report
        table.add_row(
            plain(worker.label),
            plain(worker.id[:ID_SHOWN]),
            state_text(worker, now_ms),
            f"{worker.held}/{worker.slots}",
            str(report.running),
            str(report.waiting),
            f"{_short(report.kv_used_tokens)}/{_short(report.kv_total_tokens)}" if report.kv_total_tokens else "-",
            _share(prefix_hits(report)),
            _device(report),
        )
    return table


def _history(placed: list[PlacedWorker]) -> Table:
    table = _table("worker", "time in each state", "models")
    for worker in (entry.record for entry in placed):
        times = ", ".join(f"{state} {in_words(seconds)}" for state, seconds in worker.report.state_s.items())
        table.add_row(plain(worker.label), plain(times or "-"), plain(", ".join(worker.models) or "-"))
    return table


def _table(*headings: str) -> Table:
    """Names and lists may fold, so that a narrow terminal cuts nothing off."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for heading in headings:
        folds = heading in ("worker", "time in each state", "models")
        table.add_column(heading, no_wrap=not folds, overflow="fold")
    return table


def prefix_hits(report: LoadReport) -> float | None:
    """Share of the prompt tokens whose KV blocks were there already; None before the first, or where nobody tells."""
    return report.prefix_hit_tokens / report.prefix_query_tokens if report.prefix_query_tokens else None


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _short(tokens: int) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 10_000 else str(tokens)


def _device(report: LoadReport) -> str:
    heat = "" if report.device_temperature_c is None else f"{report.device_temperature_c:.0f} °C"
    use = "" if report.device_utilisation is None else f"{report.device_utilisation:.0%}"
    return " ".join(part for part in (heat, use) if part) or "-"


def as_json(roster: Roster) -> JsonObject:
    """The same for machines; times in ms of Redis's clock, seconds for the time in each state."""
    return {"now_ms": roster.now_ms, "workers": [_worker_json(worker, roster.now_ms) for worker in roster.workers]}


def _worker_json(worker: PlacedWorker, now_ms: int) -> JsonObject:
    return {
        "shard": str(worker.shard),
        **worker.record.model_dump(mode="json"),
        "state": state_of(worker.record, now_ms),
        "prefix_hits": prefix_hits(worker.record.report),
    }
