"""Jobs that were set aside, as a table, as text and as JSON: pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from producer.dead import DeadInfo, SetAside
from producer.jobs import JobInfo
from protocol import wire
from protocol.errors import InvalidRequest
from protocol.messages import AttemptRecord, JobRecord
from protocol.wire import JsonObject
from tokenfleet.cli import job as job_view
from tokenfleet.cli.durations import moment
from tokenfleet.plain import plain
from tokenfleet.terminal import harmless


def as_table(jobs: Sequence[SetAside]) -> RenderableType:
    """A line for each."""
    if not jobs:
        return Text("no job is set aside")
    table = _table("handle", "when", "error", "strikes", "model")
    for job in jobs:
        record = job.record
        strikes, model = (str(record.strikes), record.spec.model) if record else ("-", "-")
        table.add_row(plain(str(job.handle)), moment(job.at_ms), plain(job.code), strikes, plain(model))
    return table


def as_json(job: SetAside) -> JsonObject:
    """What the table shows, for machines."""
    record = job.record
    return {
        "handle": str(job.handle),
        "at_ms": job.at_ms,
        "code": job.code,
        "strikes": record.strikes if record else None,
        "model": record.spec.model if record else None,
    }


def info_as_text(info: DeadInfo) -> RenderableType:
    """The record line by line, the attempts as a table, and the request where it was read."""
    job, record = info.job, info.job.record
    shown = job_view.lines(_as_info(job, record)) if record else [("job", str(job.handle))]
    shown += [("set aside", moment(job.at_ms)), ("reason", _reason(info))]
    lines = [Text.assemble((f"{name:<12}", "dim"), " ", harmless(value)) for name, value in shown if value]
    history = [_attempts(record.history)] if record and record.history else []
    body = [Text("request", "dim"), Text(harmless(info.body.decode(errors="replace")))] if info.body else []
    return Group(*lines, *history, *body)


def _attempts(history: Sequence[AttemptRecord]) -> Table:
    table = _table("attempt", "worker", "fault", "why", "when")
    for attempt in history:
        who = str(attempt.attempt), plain(attempt.worker)
        table.add_row(*who, plain(attempt.fault), plain(attempt.why), moment(attempt.at_ms))
    return table


def info_as_json(info: DeadInfo) -> JsonObject:
    """All that is known; `body` only where it was read."""
    job, record = info.job, info.job.record
    members = job_view.as_json(_as_info(job, record)) if record else {"handle": str(job.handle)}
    body = {"body": _readable(info.body)} if info.body else {}
    return {**members, "at_ms": job.at_ms, "reason": _reason(info), **body}


def _as_info(job: SetAside, record: JobRecord) -> JobInfo:
    return JobInfo(str(job.handle), record, None)


def _reason(info: DeadInfo) -> str:
    error = info.outcome.error if info.outcome else None
    return error.message if error else ""


def _readable(body: bytes) -> object:
    """The request as JSON, or as text where it is none: that may be why the job stands here."""
    try:
        return wire.loads(body)
    except InvalidRequest:
        return body.decode(errors="replace")


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
