"""`tokenfleet batch retry-failed`: the rows of a batch that failed, once more."""

from functools import partial
from typing import TYPE_CHECKING, Unpack

import click

from tokenfleet.cli.batch.options import EndOptions, SendOptions, end_options, send_options
from tokenfleet.cli.batch.running import end, ran
from tokenfleet.cli.options import json_option, shared_options

if TYPE_CHECKING:
    from producer.batch import BatchSummary
    from producer.fleet import Fleet
    from tokenfleet.batch_progress import CheckedLines, Show


class Options(EndOptions, SendOptions):
    """The options of `batch retry-failed`, as click hands them over."""

    target: str


@click.command("retry-failed")
@click.option("-o", "--output", "target", required=True, metavar="OUT", help="The output of a batch that has ended.")
@end_options()
@send_options
@shared_options
@json_option
@click.pass_context
def command(context: click.Context, **options: Unpack[Options]) -> None:
    """Run the rows of a batch that failed or never ended again; each has its new line in place of the old one.

    What the batch was stands in OUT.state: its input, which must be unchanged, its error file and its order. Lines
    that are no requests stay failed: mend the input and run it anew. Everything else is as for `batch run`.

    \b
    Example:
      tokenfleet batch retry-failed -o answers.jsonl

    Exit codes are those of `batch run`: 3 where rows failed once more.
    """
    context.exit(end(ran(partial(_run, options), options["target"]), options["target"]))


async def _run(options: Options, fleet: "Fleet", show: "Show", _: "CheckedLines") -> "BatchSummary":
    from producer.batch import retry_failed

    return await retry_failed(fleet, **options, on_progress=show)
