"""`tokenfleet cancel`: end a job."""

import click

from protocol.handle import Handle
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import job_handle, json_option, shared_options, wants_json
from tokenfleet.cli.output import print_json


@click.command("cancel")
@click.argument("handle", type=job_handle)
@shared_options
@json_option
def command(handle: Handle) -> None:
    """Cancel a job at once: queued, delayed or running. Its engine slot is free within a second.

    \b
    Example:
      tokenfleet cancel smollm2-135m.0.default.3f2a

    With --json: `handle`, `before` (its state until now), `cancelled` (false when it had ended already).

    \b
    Exit codes: 0 cancelled or ended before, 2 no such job, 4 Redis is away.
    """
    before = with_fleet(lambda fleet: fleet.cancel(handle))
    if wants_json():
        print_json({"handle": str(handle), "before": before, "cancelled": not before.terminal})
    elif before.terminal:
        click.echo(f"nothing to cancel: the job is {before}")
    else:
        click.echo(f"cancelled; the job was {before}")
