"""`tokenfleet batch list`: the submitted batches."""

import click

from tokenfleet.cli.batch.options import service_options
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import wants_json
from tokenfleet.cli.output import print_json


@click.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="So many at most.")
@click.option("--after", default="", metavar="BATCH", help="Those that are older than this one.")
@service_options
def command(limit: int, after: str) -> None:
    """List the batches that were submitted, the newest first.

    \b
    Example:
      tokenfleet batch list --limit 5

    With --json, one batch a line, as OpenAI's API shows it.

    \b
    Exit codes: 0 listed, 2 there is no batch AFTER, 4 Redis is away.
    """
    records = with_fleet(lambda fleet: fleet.batches.list(limit, after))
    if wants_json():
        for record in records:
            print_json(record.as_json())
        return
    from tokenfleet.cli.batch.view import as_table
    from tokenfleet.plain import print_drawn

    print_drawn(as_table(records))
