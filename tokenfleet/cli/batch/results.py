"""`tokenfleet batch results`: the lines of a submitted batch."""

from typing import TYPE_CHECKING, BinaryIO

import click

from tokenfleet.cli.batch.options import service_options
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.exits import Exit
from tokenfleet.cli.options import wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from producer.fleet import Fleet
    from protocol.batches import BatchRecord


@click.command("results")
@click.argument("batch_id", metavar="BATCH")
@click.option("-o", "--output", type=click.File("wb", lazy=True), help="Where to; stdout by default.")
@click.option("--partial", is_flag=True, help="Also while it runs: the lines that are there.")
@service_options
@click.pass_context
def command(context: click.Context, batch_id: str, output: BinaryIO | None, *, partial: bool) -> None:
    """Print a submitted batch's output lines, then its error lines, as OpenAI has them.

    \b
    Examples:
      tokenfleet batch results batch_5a1e3017c0f11a49ae811bd0 -o answers.jsonl
      tokenfleet batch results batch_5a1e3017c0f11a49ae811bd0 --partial | jq .custom_id

    The lines are JSON with and without --json. With --json and -o, one object on stdout: `id`, `status`, `lines`.

    \b
    Exit codes: 0 all rows are there and none failed, or a part was printed; 2 no such batch, no store is set, or it has
    not ended and no part was asked for; 3 it has ended, and some rows failed, or it failed, expired or was cancelled;
    4 Redis is away or the disk is full.
    """
    from tokenfleet.cli.batch.view import exit_of, problems, progress_line

    record, count = with_fleet(lambda fleet: _print(fleet, batch_id, output, partial=partial))
    if not count:
        for line in (f"no line is there: the batch is {progress_line(record)}", *problems(record)):
            click.echo(line, err=True)
    if output and wants_json():
        print_json({"id": record.name.id, "status": record.status, "lines": count})
    context.exit(exit_of(record) if record.status.terminal else Exit.CLEAN)


async def _print(fleet: "Fleet", batch_id: str, output: BinaryIO | None, *, partial: bool) -> "tuple[BatchRecord, int]":
    record, count = await fleet.batches.get(batch_id), 0
    async for line in fleet.batches.result_lines(batch_id, partial=partial):
        click.echo(line, file=output, nl=False)
        count += 1
    # Without any line the file is made all the same.
    click.echo(b"", file=output, nl=False)
    return record, count
