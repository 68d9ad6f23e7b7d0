"""`tokenfleet dead`: jobs that were set aside."""

from typing import TYPE_CHECKING

import click

from protocol.errors import InvalidRequest
from protocol.handle import Handle
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import job_handle, json_option, shared_options, wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from producer.dead import SetAside
    from producer.fleet import Fleet


@click.group("dead")
def command() -> None:
    """Look at jobs that were set aside, and run them anew.

    A job is set aside when its engine or worker died three times while it ran, or when its description can't be read.
    It is kept for a week, with its request.
    """


@command.command("list")
@click.option("--pool", default="", help="Only this pool's.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="So many at most.")
@shared_options
@json_option
def list_jobs(pool: str, limit: int) -> None:
    """List the jobs that were set aside, the last one first.

    \b
    Examples:
      tokenfleet dead list
      tokenfleet dead list --pool llama-70b --limit 10 --json

    With --json, one object a line: `handle`, `at_ms` (Redis's clock), `code`, `strikes`, `model`.

    \b
    Exit codes: 0 listed, 4 Redis is away.
    """
    from producer.dead import list_dead

    jobs = with_fleet(lambda fleet: list_dead(fleet.redis, pool=pool, limit=limit, scope=fleet.scope))
    from tokenfleet.cli.dead_view import as_json, as_table

    if wants_json():
        for job in jobs:
            print_json(as_json(job))
        return
    from tokenfleet.plain import print_drawn

    print_drawn(as_table(jobs))


@command.command("show")
@click.argument("handle", type=job_handle)
@click.option("--body", is_flag=True, help="Print the request too: it holds the prompt.")
@shared_options
@json_option
def show(handle: Handle, body: bool) -> None:  # noqa: FBT001 - click's signature
    """Show a job that was set aside: its record, its error, and each attempt with its worker, fault, reason and time.

    The prompt is shown with --body only.

    \b
    Example:
      tokenfleet dead show smollm2-135m.0.default.3f2a

    With --json, one object: what `tokenfleet job --json` has with its `history`, and `at_ms`, `reason`, and `body`
    where it was asked for.

    \b
    Exit codes: 0 shown, 2 no such job is set aside, 4 Redis is away.
    """
    from producer.dead import read_dead

    info = with_fleet(lambda fleet: read_dead(fleet.redis, fleet.scope.known(handle), body=body))
    from tokenfleet.cli.dead_view import info_as_json, info_as_text

    if wants_json():
        print_json(info_as_json(info))
        return
    from tokenfleet.plain import print_drawn

    print_drawn(info_as_text(info))


@command.command("replay")
@click.argument("handles", nargs=-1, type=job_handle, metavar="HANDLE…")
@click.option("--all", "everything", is_flag=True, help="All that are set aside.")
@click.option("--pool", default="", help="With --all: only this pool's.")
@shared_options
@json_option
def replay(handles: tuple[Handle, ...], everything: bool, pool: str) -> None:  # noqa: FBT001 - click's signature
    """Run jobs anew that were set aside: same handle and request, a new deadline, no strikes.

    Mend what killed them first: such a job may kill three workers more. One whose description can't be read stays
    where it is.

    \b
    Examples:
      tokenfleet dead replay smollm2-135m.0.default.3f2a
      tokenfleet dead replay --all --pool llama-70b

    With --json, one object a line: `handle` and `replayed`.

    \b
    Exit codes: 0 all are queued again, 2 one is not set aside: those printed before it are queued again,
    4 the queue is full or Redis is away.
    """
    if bool(handles) == everything or (pool and not everything):
        raise InvalidRequest("give either handles or --all", "--pool narrows --all.")
    with_fleet(lambda fleet: _replay(fleet, handles, pool))


async def _replay(fleet: "Fleet", handles: tuple[Handle, ...], pool: str) -> None:
    if handles:
        for handle in handles:
            await fleet.replay(handle)
            _told(handle, replayed=True)
        return
    for job in await _all(fleet, pool):
        if job.record:
            await fleet.replay(job.handle)
        _told(job.handle, replayed=job.record is not None)


async def _all(fleet: "Fleet", pool: str) -> "list[SetAside]":
    """The oldest first: that is their order in the lane."""
    from producer.dead import list_dead

    status = await fleet.status()
    limit = sum(shard.dead for shard in status.shards)
    return (await list_dead(fleet.redis, pool=pool, limit=limit, scope=fleet.scope))[::-1]


def _told(handle: Handle, *, replayed: bool) -> None:
    if wants_json():
        print_json({"handle": str(handle), "replayed": replayed})
    else:
        click.echo(f"{handle}  {'queued again' if replayed else 'left: its description cannot be read'}")
