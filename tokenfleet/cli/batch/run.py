"""`tokenfleet batch run`: a file of requests in, a file of answers out."""

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.durations import duration
from tokenfleet.cli.exits import Exit
from tokenfleet.cli.options import json_option, shared_options, wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from producer.batch import BatchSummary
    from producer.fleet import Fleet


class Options(TypedDict):
    """The options of `batch run`, as click hands them over."""

    source: str
    target: str
    model: str | None
    limit: int | None
    priority: str
    deadline: float | None
    window: int
    durable: bool


@click.command("run")
@click.option(
    "-i", "--input", "source", required=True, metavar="IN", help="One request a line; - is stdin, .gz is unpacked."
)
@click.option("-o", "--output", "target", required=True, metavar="OUT", help="Replaced by the answers; - is stdout.")
@click.option("--model", help="Run all rows on this model, whatever they name.")
@click.option("--limit", type=click.IntRange(0), help="Take only the first N rows.")
@click.option(
    "--priority",
    type=click.Choice(["high", "medium", "low"]),
    default="medium",
    show_default=True,
    help="medium: a batch; low: whenever there is room.",
)
@click.option("--deadline", type=duration, help="Rows that have not ended by then expire, such as 6h.")
@click.option("--window", type=click.IntRange(1), default=256, show_default=True, help="Rows in Redis at once.")
@click.option("--durable", is_flag=True, help="Submit each row until a replica or the disk has it.")
@shared_options
@json_option
@click.pass_context
def command(context: click.Context, **options: Unpack[Options]) -> None:
    """Run each row of IN and write one OpenAI output line for it to OUT, in the order in which they end.

    A row that can't be run gets its line with an error; the others go on. Only a window of rows is in Redis at once,
    however long the file is. Progress goes to stderr: a bar in a terminal, plain lines elsewhere.

    \b
    Examples:
      tokenfleet batch run -i prompts.jsonl -o answers.jsonl
      tokenfleet batch run -i big.jsonl -o out.jsonl --limit 100 --priority low --deadline 6h

    \b
    A row of IN:
      {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions",
       "body": {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}}

    With --json, the last line of stdout is one object: rows_in, rows_out, rows_failed, tokens_in, tokens_out,
    tokens_per_s, queue_ms and ttft_ms as percentiles, jobs_by_worker.

    \b
    Exit codes: 0 all rows completed, 2 a file can't be opened or an option is wrong, 3 some rows failed,
    4 Redis is away or the disk is full, 130 interrupted, 141 nobody reads OUT any more; the rows that waited are
    withdrawn.
    """
    summary = with_fleet(lambda fleet: _run(fleet, options))
    if wants_json():
        print_json(summary.as_json())
    context.exit(Exit.FAILED if summary.rows_failed else Exit.CLEAN)


async def _run(fleet: "Fleet", options: Options) -> "BatchSummary":
    from rich.console import Console

    from producer.batch import run_batch
    from tokenfleet.batch_progress import as_table, progress_on

    console = Console(stderr=True, highlight=False)
    with progress_on(console) as show:
        summary = await run_batch(
            fleet,
            options["source"],
            options["target"],
            limit=options["limit"],
            model=options["model"],
            priority=options["priority"],
            deadline=options["deadline"],
            window=options["window"],
            durable=options["durable"],
            on_progress=show,
        )
    console.print(as_table(summary))
    return summary
