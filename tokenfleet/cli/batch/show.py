"""`tokenfleet batch show`: a look at a submitted batch."""

from typing import TYPE_CHECKING

import click

from tokenfleet.cli.batch.options import service_options
from tokenfleet.cli.batch.runners import tell_if_none, tell_if_unserved
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from producer.fleet import Fleet
    from protocol.batches import BatchRecord


@click.command("show")
@click.argument("batch_id", metavar="BATCH")
@service_options
def command(batch_id: str) -> None:
    """Show a submitted batch: its state, its rows, its times, its files, and what is wrong with its input.

    \b
    Example:
      tokenfleet batch show batch_5a1e3017c0f11a49ae811bd0

    With --json, the batch as OpenAI's API shows it.

    \b
    Exit codes: 0 found, whatever its state; 2 no such batch; 4 Redis is away.
    """
    with_fleet(lambda fleet: _show(fleet, batch_id))


async def _show(fleet: "Fleet", batch_id: str) -> None:
    record = await fleet.batches.get(batch_id)
    if wants_json():
        print_json(record.as_json())
    else:
        _print(record)
    if not record.status.terminal:
        await tell_if_none(fleet)
        await tell_if_unserved(fleet, record)


def _print(record: "BatchRecord") -> None:
    from tokenfleet.cli.batch.view import as_lines, problems

    for name, value in as_lines(record):
        click.echo(f"{click.style(f'{name:<12}', dim=True)} {value}")
    for problem in problems(record):
        click.echo(problem)
