"""`tokenfleet batch cancel`: withdraw a submitted batch."""

import click

from tokenfleet.cli.batch.options import service_options
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import wants_json
from tokenfleet.cli.output import print_json


@click.command("cancel")
@click.argument("batch_id", metavar="BATCH")
@service_options
def command(batch_id: str) -> None:
    """Cancel a submitted batch: rows that run are withdrawn, those that are done stay in its output.

    Its runner does so within seconds: `cancelling` until then. One that is ending or has ended is left alone.

    \b
    Example:
      tokenfleet batch cancel batch_5a1e3017c0f11a49ae811bd0

    With --json, the batch as OpenAI's API shows it.

    \b
    Exit codes: 0 it will be cancelled, or has ended; 2 no such batch; 4 Redis is away.
    """
    record = with_fleet(lambda fleet: fleet.batches.cancel(batch_id))
    if wants_json():
        print_json(record.as_json())
    else:
        click.echo(f"{record.name.id} is {record.status}")
