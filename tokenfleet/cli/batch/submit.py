"""`tokenfleet batch submit`: give a file to the batch runners."""

import sys
from typing import TYPE_CHECKING, Unpack

import click

from protocol.errors import InvalidRequest
from tokenfleet.cli.batch.options import EndOptions, RowOptions, end_options, row_options, service_options
from tokenfleet.cli.batch.runners import tell_if_none
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from producer.fleet import Fleet
    from protocol.batches import BatchRecord


class Options(RowOptions, EndOptions):
    """The options of `batch submit`, as click hands them over."""

    source: str
    metadata: tuple[str, ...]


@click.command("submit")
@click.option(
    "-i", "--input", "source", required=True, metavar="IN", help="A file, - for stdin, or a stored file's id."
)
@row_options
@end_options(deadline="24h")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Kept with the batch; up to 16 of them.")
@service_options
def command(**options: Unpack[Options]) -> None:
    """Put IN into the store and have a batch runner run it; prints the batch's id at once.

    Bad lines are found by the runner: the batch is `failed` then, and `tokenfleet batch show` lists them.

    \b
    Examples:
      tokenfleet batch submit -i prompts.jsonl --store /srv/batches
      tokenfleet batch submit -i big.jsonl.gz --priority low --deadline 6h --metadata team=search

    With --json, the batch as OpenAI's API shows it.

    \b
    Exit codes: 0 submitted, 2 the file can't be opened, no store is set, or an option is wrong, 4 Redis is away, or it
    or the store's disk is full.
    """
    with_fleet(lambda fleet: _submit(fleet, options))


async def _submit(fleet: "Fleet", options: Options) -> None:
    record = await _put(fleet, options)
    if wants_json():
        print_json(record.as_json())
    else:
        click.echo(record.name.id)
    await tell_if_none(fleet)


async def _put(fleet: "Fleet", options: Options) -> "BatchRecord":
    source, rest = options["source"], {name: value for name, value in options.items() if name != "source"}
    rest["metadata"] = _pairs(options["metadata"])
    if source == "-":
        if sys.stdin is None:
            raise InvalidRequest("stdin is closed", "Name a file.")
        return await fleet.batches.submit(sys.stdin.buffer, filename="stdin.jsonl", **rest)  # type: ignore[arg-type]  # click has checked them
    return await fleet.batches.submit(source, **rest)  # type: ignore[arg-type]  # as above


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if bad := [key for key, separator, _ in pairs if not separator]:
        raise InvalidRequest(f"--metadata: {bad[0]!r} is no KEY=VALUE")
    return {key: value for key, _, value in pairs}
