"""`tokenfleet job`: a look at a job."""

from typing import TYPE_CHECKING

import click

from protocol.handle import Handle
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.durations import in_words, moment
from tokenfleet.cli.options import job_handle, json_option, shared_options, wants_json
from tokenfleet.cli.output import print_json
from tokenfleet.terminal import harmless

if TYPE_CHECKING:
    from producer.jobs import JobInfo
    from protocol.wire import JsonObject

_HIDDEN = frozenset({"spec", "member"})


@click.command("job")
@click.argument("handle", type=job_handle)
@shared_options
@json_option
def command(handle: Handle) -> None:
    """Show a job: its state, its place in its lane, its attempts, its times, its worker.

    \b
    Example:
      tokenfleet job smollm2-135m.0.default.3f2a

    An attempt's number is the shard's, counted over all its jobs: how often this one was tried stands behind it.

    With --json, one object; times are ms of Redis's clock, 0 when not reached; `queue_ms`, `ttft_ms` and `total_ms`
    count from its submission, null when not reached.

    \b
    Exit codes: 0 found, whatever its state; 2 no such job; 4 Redis is away.
    """
    info = with_fleet(lambda fleet: fleet.job(handle))
    if wants_json():
        print_json(as_json(info))
        return
    for name, value in lines(info):
        click.echo(f"{click.style(f'{name:<12}', dim=True)} {harmless(value)}")


def as_json(info: "JobInfo") -> "JsonObject":
    """All that is known of the job."""
    spec, record = info.record.spec, info.record.model_dump(mode="json")
    return {
        "handle": info.handle,
        "model": spec.model,
        "endpoint": spec.endpoint,
        "stream": spec.stream,
        "place": info.place,
        **{name: value for name, value in record.items() if name not in _HIDDEN},
        "queue_ms": info.queue_ms,
        "ttft_ms": info.ttft_ms,
        "total_ms": info.total_ms,
    }


def lines(info: "JobInfo") -> list[tuple[str, str]]:
    """What is shown to people: name and text, without what is not known yet."""
    record = info.record
    place = f"{info.place} jobs before it in the lane" if info.place is not None else ""
    attempts = f"{record.attempt} ({record.tries} given back, {record.strikes} strikes)" if record.attempt else ""
    shown = [
        ("job", info.handle),
        ("state", f"{record.state}{f': {record.error}' if record.error else ''}"),
        ("priority", str(record.priority)),
        ("model", f"{record.spec.model} {record.spec.endpoint}"),
        ("place", place),
        ("attempt", attempts),
        ("worker", record.worker),
        ("submitted", moment(record.submitted_ms)),
        ("started", _after(info.queue_ms)),
        ("first token", _after(info.ttft_ms)),
        ("ended", _after(info.total_ms)),
        ("deadline", moment(record.deadline_ms)),
    ]
    return [(name, value) for name, value in shown if value]


def _after(wait_ms: int | None) -> str:
    return "" if wait_ms is None else f"{in_words(wait_ms / 1000)} after its submission"
