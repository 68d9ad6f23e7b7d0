"""`tokenfleet batch delete`: forget a batch that has ended."""

import click

from tokenfleet.cli.batch.options import service_options
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import wants_json
from tokenfleet.cli.output import print_json


@click.command("delete")
@click.argument("batch_id", metavar="BATCH")
@service_options
def command(batch_id: str) -> None:
    """Delete a batch that has ended, its results, and its input where no other batch has it.

    \b
    Example:
      tokenfleet batch delete batch_5a1e3017c0f11a49ae811bd0

    With --json: `id` and `deleted`.

    \b
    Exit codes: 0 deleted, 2 no such batch, it has not ended, or no store is set, 4 Redis is away.
    """
    with_fleet(lambda fleet: fleet.batches.delete(batch_id))
    if wants_json():
        print_json({"id": batch_id, "deleted": True})
    else:
        click.echo("deleted")
