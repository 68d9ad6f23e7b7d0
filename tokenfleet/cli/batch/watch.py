"""`tokenfleet batch watch`: a submitted batch until its end."""

from typing import TYPE_CHECKING

import click

from tokenfleet.cli.batch.options import service_options
from tokenfleet.cli.batch.runners import tell_if_none
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from producer.fleet import Fleet
    from protocol.batches import BatchRecord


@click.command("watch")
@click.argument("batch_id", metavar="BATCH")
@service_options
@click.pass_context
def command(context: click.Context, batch_id: str) -> None:
    """Print where a submitted batch stands whenever that changes, until it has ended. Ctrl-C: the batch goes on.

    \b
    Example:
      tokenfleet batch watch batch_5a1e3017c0f11a49ae811bd0

    With --json, the batch as OpenAI's API shows it, a line each time.

    \b
    Exit codes: 0 completed without a failed row, 2 no such batch, 3 some rows failed, or it failed, expired or was
    cancelled, 4 Redis is away, 130 interrupted.
    """
    from tokenfleet.cli.batch.view import exit_of, problems

    record = with_fleet(lambda fleet: _watch(fleet, batch_id))
    if not wants_json():
        for problem in problems(record):
            click.echo(problem)
    context.exit(exit_of(record))


async def _watch(fleet: "Fleet", batch_id: str) -> "BatchRecord":
    from tokenfleet.cli.batch.view import progress_line

    last = await fleet.batches.get(batch_id)
    if not last.status.terminal:
        await tell_if_none(fleet)
    async for last in fleet.batches.watch(batch_id):
        if wants_json():
            print_json(last.as_json())
        else:
            click.echo(progress_line(last))
    return last
