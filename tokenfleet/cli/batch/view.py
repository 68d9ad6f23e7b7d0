"""A submitted batch as text, as a table's row and as JSON: pure."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from producer.batch.progress import Progress
from protocol.batches import BatchRecord, BatchStatus, BatchUsage
from protocol.wire import JsonObject
from tokenfleet.batch_progress import plain_line
from tokenfleet.cli.durations import in_words, moment, short_moment, speed
from tokenfleet.cli.exits import Exit
from tokenfleet.plain import plain
from tokenfleet.terminal import harmless

MOST_ERRORS = 100


def as_json(record: BatchRecord) -> JsonObject:
    """OpenAI's `Batch`."""
    return record.as_json()


def progress_line(record: BatchRecord, news: Progress | None = None) -> str:
    """Where it stands, on one line; with news of its pace as `batch run` has it."""
    if news:
        return f"{record.status}: {plain_line(news, datetime.now().astimezone())}"
    counts = record.counts
    total = str(counts.total) if counts.total else "?"
    return f"{record.status}: rows {counts.completed + counts.failed}/{total}, {counts.failed} failed"


def end_line(record: BatchRecord) -> str:
    """The same of one that has ended, with its average pace and its tokens; without, where no row ever ran."""
    times, counts, usage = record.times_ms, record.counts, record.usage or BatchUsage()
    begun_ms, ended_ms = times.get(BatchStatus.IN_PROGRESS), times.get(BatchStatus.FINALIZING, times[record.status])
    if begun_ms is None:
        return progress_line(record)
    seconds = max(ended_ms - begun_ms, 1) / 1000
    rows_per_s, tokens_per_s = (counts.completed + counts.failed) / seconds, usage.output_tokens / seconds
    pace = f"{speed(rows_per_s)} rows/s, {tokens_per_s:,.0f} tokens/s, {in_words(seconds)}"
    return f"{progress_line(record)}, {pace}; {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"


def as_lines(record: BatchRecord) -> list[tuple[str, str]]:
    """Name and text of what is known."""
    spec, usage = record.spec, record.usage
    times = [(str(status), moment(ms)) for status, ms in sorted(record.times_ms.items(), key=lambda pair: pair[1])]
    shown = [
        ("batch", record.name.id),
        ("status", progress_line(record)),
        ("endpoint", spec.endpoint),
        ("model", record.model or spec.model or ""),
        ("priority", str(spec.priority)),
        ("input", spec.input_file_id),
        ("output", record.output_file_id or ""),
        ("errors", record.error_file_id or ""),
        ("tokens", f"{usage.input_tokens:,} in, {usage.output_tokens:,} out" if usage else ""),
        ("metadata", ", ".join(f"{key}={value}" for key, value in spec.metadata.items())),
        *times,
        ("expires", "" if record.status.terminal else moment(record.expires_ms)),
    ]
    return [(name, harmless(text)) for name, text in shown if text]


def problems(record: BatchRecord) -> list[str]:
    """What is wrong with the input, a line each, as `batch validate` tells it."""
    found = [
        f"{f'line {error.line}: ' if error.line else ''}{error.code}: {error.message}"
        for error in record.errors[:MOST_ERRORS]
    ]
    more = len(record.errors) - len(found)
    return [*map(harmless, found), *([f"… and {more} more"] if more else [])]


def as_table(records: Sequence[BatchRecord]) -> RenderableType:
    """A line for each."""
    if not records:
        return Text("no batch was submitted")
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for heading in ("batch", "created", "status", "rows", "failed", "model"):
        # Ids are there to be copied, and whole at 80 columns: only a model's name is folded.
        table.add_column(heading, overflow="fold", no_wrap=heading != "model")
    for record in records:
        counts = record.counts
        done = f"{counts.completed + counts.failed}/{counts.total or '?'}"
        created = short_moment(record.times_ms[BatchStatus.VALIDATING])
        model = plain(record.model or record.spec.model or "")
        table.add_row(plain(record.name.id), created, str(record.status), done, str(counts.failed), model)
    return table


def exit_of(record: BatchRecord) -> Exit:
    """Clean only when it has completed and no row failed."""
    clean = record.status is BatchStatus.COMPLETED and not record.counts.failed
    return Exit.CLEAN if clean else Exit.FAILED
