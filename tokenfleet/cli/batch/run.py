"""`tokenfleet batch run`: a file of requests in, a file of answers out."""

from functools import partial
from typing import TYPE_CHECKING, Unpack

import click

from protocol.errors import BatchInvalid, FleetError, OutputFailed
from tokenfleet.cli.batch.invalid import refused, told
from tokenfleet.cli.batch.options import EndOptions, RowOptions, SendOptions, end_options, row_options, send_options
from tokenfleet.cli.batch.running import end, ran
from tokenfleet.cli.exits import exit_of
from tokenfleet.cli.options import json_option, shared_options, wants_json
from tokenfleet.cli.output import print_error
from tokenfleet.cli.streams import let_go

if TYPE_CHECKING:
    from producer.batch import BatchSummary
    from producer.fleet import Fleet
    from tokenfleet.batch_progress import CheckedLines, Show


STANDARD = "-"


class Options(RowOptions, EndOptions, SendOptions):
    """The options of `batch run`, as click hands them over."""

    source: str
    target: str
    errors: str | None
    limit: int | None
    resume: bool
    overwrite: bool


@click.command("run")
@click.option(
    "-i", "--input", "source", required=True, metavar="IN", help="One request a line; - is stdin, .gz is unpacked."
)
@click.option("-o", "--output", "target", required=True, metavar="OUT", help="The answers; - is stdout, .gz is packed.")
@click.option("--errors", metavar="ERR", help="The lines of failed rows go there.  [default: to OUT too]")
@click.option("--limit", type=click.IntRange(1), help="Take only the first N rows.")
@row_options
@end_options()
@click.option("--resume", is_flag=True, help="Go on with a run that broke off, or begin where there was none.")
@click.option("--overwrite", is_flag=True, help="Replace OUT and ERR if they exist.")
@send_options
@shared_options
@json_option
@click.pass_context
def command(context: click.Context, **options: Unpack[Options]) -> None:
    """Run each row of IN and write exactly one OpenAI output line for it, whatever became of it.

    First IN is read once: every line that is no request is reported as FILE:LINE: CODE: MESSAGE on stderr, the first
    hundred of them, and nothing is run unless --on-invalid skip. Then only a window of rows is in Redis at once,
    however long IN is; rows that begin alike go close together. A row that fails gets its line, and the others go on.

    Which rows are done stands in OUT.state, beside OUT. After a crash, a Ctrl-C, a full disk or a passed deadline the
    same command with --resume goes on: no row that has its line is run again. Input and options must be the same;
    --deadline, --priority, --window and --max-errors may change. Stdin has to bring the same once more, or nothing.

    \b
    Examples:
      tokenfleet batch run -i prompts.jsonl -o answers.jsonl
      tokenfleet batch run -i prompts.jsonl -o answers.jsonl --resume
      tokenfleet batch run -i big.jsonl.gz -o out.jsonl.gz --errors failed.jsonl --order input --deadline 6h
      zcat big.gz | tokenfleet batch run -i - -o - --limit 100 --priority low > out.jsonl

    \b
    A row of IN:
      {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions",
       "body": {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}}

    \b
    Its line:
      {"id": "batch_req_…", "custom_id": "r1", "response": {"status_code": 200, "request_id": "…", "body": {…}},
       "error": null}
    Where a row got no answer, response is null, and error says why: batch_expired (--deadline), batch_cancelled
    (Ctrl-C), batch_failed (--max-errors), or what went wrong with the row. All three are run by --resume.

    Progress goes to stderr. With --json, the last line of stdout (of stderr, when rows go to stdout) is one object:
    state (completed, cancelled, expired, failed), rows_in, rows_out, rows_failed, rows_unfinished, tokens_in,
    tokens_out, rows_per_s, tokens_per_s; queue_ms, ttft_ms and total_ms as percentiles; jobs_by_worker.

    \b
    Exit codes: 0 every row was answered; 2 lines of IN are no requests, a file can't be opened or an option is wrong;
    3 some rows failed or never ended; 4 Redis is away or the disk is full; 130 interrupted; 141 nobody reads OUT.
    """
    # Who reads the rows from stdout reads nothing else there.
    aside = STANDARD in (options["target"], options["errors"])
    try:
        summary = ran(partial(_run, options), options["target"], err=aside)
    except BatchInvalid as error:
        context.exit(refused(options["source"], error, err=aside))
    except FleetError as error:
        print_error(error, as_json=wants_json(), err=aside)
        if aside and isinstance(error, OutputFailed):
            let_go()
        context.exit(exit_of(error))
    context.exit(end(summary, options["target"], options["source"], options["errors"], err=aside))


async def _run(options: Options, fleet: "Fleet", show: "Show", checked: "CheckedLines") -> "BatchSummary":
    from producer.batch import run_batch

    return await run_batch(
        fleet, **options, on_lines=checked, on_progress=show, on_bad=partial(told, options["source"])
    )
