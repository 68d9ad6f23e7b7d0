"""`tokenfleet follow`: a job's tokens."""

import click

from protocol.handle import Handle
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.events import print_events
from tokenfleet.cli.options import job_handle, json_option, shared_options, wants_json


@click.command("follow")
@click.argument("handle", type=job_handle)
@click.option("--after", default="", metavar="ID", help="Go on after this event; ids stand in --json's output.")
@shared_options
@json_option
@click.pass_context
def command(context: click.Context, handle: Handle, after: str) -> None:
    """Print a job's tokens as they come, from its first one or from where you stopped.

    Come late, or again after a broken connection: nothing is missing and nothing comes twice. A job that was not
    submitted with --follow prints its whole text at its end.

    \b
    Examples:
      tokenfleet follow smollm2-135m.0.default.3f2a
      tokenfleet follow smollm2-135m.0.default.3f2a --json --after 17-4

    With --json, one object a line: `event` is tokens, restart (the text begins again), truncated, or end.

    \b
    Exit codes: 0 completed, 2 no such job, 3 failed, cancelled or expired, 4 Redis is away.
    """
    as_json = wants_json()
    context.exit(with_fleet(lambda fleet: print_events(fleet.follow(handle, after), as_json=as_json)))
