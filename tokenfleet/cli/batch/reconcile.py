"""`tokenfleet batch reconcile`: the proof that a batch is complete."""

from typing import TYPE_CHECKING

import click

from tokenfleet.cli.exits import Exit
from tokenfleet.cli.options import json_option, wants_json
from tokenfleet.cli.output import print_json
from tokenfleet.terminal import harmless

if TYPE_CHECKING:
    from producer.batch.reconcile import Finding

MOST_PRINTED = 100


@click.command("reconcile")
@click.argument("given", metavar="IN")
@click.argument("output", metavar="OUT")
@click.argument("errors", metavar="[ERR]", required=False)
@click.option("--limit", type=click.IntRange(1), help="Only the first N rows of IN: those of a run with this limit.")
@click.option("--failed-rows", "failed", metavar="FILE", help="Write the rows of IN that failed there, to be mended.")
@json_option
@click.pass_context
def command(
    context: click.Context, given: str, output: str, errors: str | None, limit: int | None, failed: str | None
) -> None:
    """Prove from the files alone that each line of IN has exactly one line in OUT or ERR, and that there is no other.

    Names the ids that are missing or doubled, the lines that belong to no row, and lines that can't be read, such as
    one that a crash has torn. No Redis is needed, and no state file. Files that end in .gz are unpacked.

    \b
    Examples:
      tokenfleet batch reconcile prompts.jsonl answers.jsonl
      tokenfleet batch reconcile prompts.jsonl.gz answers.jsonl errors.jsonl --json
      tokenfleet batch reconcile prompts.jsonl answers.jsonl --failed-rows again.jsonl

    With --json, one object for each finding: kind, custom_id, input_line, places, why; and a last one with proven,
    rows, lines, missing, doubled, foreign and unreadable. How many rows --failed-rows took out is told on stderr.

    \b
    Exit codes: 0 proven, 2 a file can't be opened, 3 not proven, 4 the disk is full.
    """
    from dataclasses import asdict
    from itertools import chain, islice

    from producer.batch.reconcile import Reconciler
    from tokenfleet.batch_progress import checking

    with checking() as checked:
        reconciler = Reconciler(given, [output, *([errors] if errors else [])], limit, checked)
        findings = reconciler.findings()
        # All lines are read before the first.
        first = list(islice(findings, 1))
    for number, finding in enumerate(chain(first, findings)):
        if wants_json():
            print_json(asdict(finding))
        elif number < MOST_PRINTED:
            click.echo(harmless(_told(finding, given)))
        elif number == MOST_PRINTED:
            click.echo("… and more")
    report = reconciler.report
    if wants_json():
        print_json(report.as_json())
    elif report.proven:
        click.echo(f"proven: each of {report.rows} rows has exactly one line")
    else:
        counts = (f"{getattr(report, kind)} {kind}" for kind in ("missing", "doubled", "foreign", "unreadable"))
        click.echo(f"not proven: {report.rows} rows, {report.lines} lines; {', '.join(counts)}")
    if failed:
        _take_out(given, [output, *([errors] if errors else [])], failed)
    context.exit(Exit.CLEAN if report.proven else Exit.FAILED)


def _take_out(given: str, results: list[str], failed: str) -> None:
    from pathlib import Path

    from producer.batch.failed_rows import write_failed

    count = write_failed(Path(given), list(map(Path, results)), Path(failed))
    told = "1 row that failed stands" if count == 1 else f"{count} rows that failed stand"
    then = (
        f"{told} in {failed}: mend it, and run it to another output" if count else f"no row failed: {failed} is empty"
    )
    click.echo(then, err=True)


def _told(finding: "Finding", given: str) -> str:
    words = []
    if finding.input_line is not None:
        words.append(f"{given}:{finding.input_line}")
    if finding.custom_id is not None:
        words.append(f"custom_id {finding.custom_id}")
    places = [f"{place.file}:{place.line}" for place in finding.places]
    return f"{finding.kind}: {', '.join(filter(None, [' '.join(words), *places, finding.why]))}"
