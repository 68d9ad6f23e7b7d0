"""`tokenfleet batch validate`: every bad line of a batch's input, before anything runs."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from protocol.errors import FleetError, StoreUnavailable
from tokenfleet.cli.batch.invalid import UNSERVED
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.exits import Exit
from tokenfleet.cli.options import json_option, load_settings, shared_options, wants_json
from tokenfleet.cli.output import print_json
from tokenfleet.signals import interruptible
from tokenfleet.terminal import harmless

if TYPE_CHECKING:
    from producer.batch.intake import Intake
    from producer.batch.judge import Rules
    from producer.batch.ledger import Ledger
    from protocol.errors import Problem
    from protocol.messages import ModelRecord

PAGE_ROWS = 1_000
PATIENCE_S = 2.0
"""The lines can be judged without Redis, and are meanwhile waited for."""


@click.command("validate")
@click.option(
    "-i", "--input", "given", required=True, metavar="IN", help="One request a line; - is stdin, .gz is unpacked."
)
@click.option("--model", default="", help="The model that all rows would run on, whatever they name.")
@click.option("--offline", is_flag=True, help="Do not ask the fleet whether it knows the model.")
@shared_options
@json_option
@click.pass_context
def command(context: click.Context, given: str, model: str, *, offline: bool) -> None:
    """Read IN once and tell every bad line as file:line: code: message. Nothing is run or stored.

    A line is judged as it would be when it is submitted. What only an engine knows is not told here: a vocabulary, a
    context length, a schema of which no grammar can be made.

    \b
    Examples:
      tokenfleet batch validate -i prompts.jsonl
      tokenfleet batch validate -i prompts.jsonl.gz --model m --offline --json

    With --json, one object for each bad line: line, code, message, param, custom_id; and a last one with valid, rows,
    bad, endpoint and model.

    \b
    Exit codes: 0 valid, 2 not valid, or IN can't be opened, 4 Redis is away: whether the model is known can't be told.
    """
    from tempfile import TemporaryDirectory

    from producer.batch.judge import Rules
    from producer.batch.ledger import Ledger

    served, failure = (None, None) if offline else _served()
    rules = Rules(load_settings().max_body_bytes, model, served=served)
    with TemporaryDirectory(prefix="tokenfleet-") as folder, Ledger.create(Path(folder, "state")) as ledger:
        intake = asyncio.run(_taken(given, ledger, rules))
        told = _tell(given, _problems(intake, ledger))
    if failure:
        raise failure
    _conclude(intake, told)
    context.exit(Exit.INVALID if told else Exit.CLEAN)


def _served() -> "tuple[Mapping[str, ModelRecord] | None, FleetError | None]":
    """The models that the fleet knows; or why it can't be asked: the lines are told all the same."""
    try:
        return with_fleet(lambda fleet: fleet.models(), patience_s=PATIENCE_S), None
    except StoreUnavailable as error:
        return None, StoreUnavailable(error.message, f"{error.hint}\nOr leave the fleet out of it: --offline.")
    except FleetError as error:
        return None, error


async def _taken(given: str, ledger: "Ledger", rules: "Rules") -> "Intake":
    from producer.batch.intake import take_in
    from tokenfleet.batch_progress import checking

    with interruptible(), checking() as checked:
        return await take_in(given, ledger, rules, on_lines=checked)


def _problems(intake: "Intake", ledger: "Ledger") -> Iterator["Problem"]:
    from producer.batch.intake import refusal

    if intake.rows == 0 and (empty := refusal(intake, ledger, skip=True)):
        yield from empty.problems
    line = 0
    while page := ledger.problems(line, PAGE_ROWS):
        yield from page
        line = page[-1].line


def _tell(given: str, problems: Iterable["Problem"]) -> int:
    """Print them; how many."""
    count = 0
    for problem in problems:
        count += 1
        if wants_json():
            print_json(asdict(problem))
        else:
            click.echo(harmless(f"{given}:{problem.line}: {problem.code}: {problem.message}"))
    return count


def _conclude(intake: "Intake", told: int) -> None:
    if wants_json():
        figures = {"rows": intake.rows, "bad": intake.bad, "endpoint": intake.endpoint, "model": intake.model}
        print_json({"valid": not told, **figures})
        return
    rows = f"{intake.rows} row{'s' * (intake.rows != 1)}"
    found = f"{told} problem{'s' * (told != 1)}"
    click.echo(f"not valid: {rows}, {found}" if told else f"valid: {rows} for {intake.endpoint}")
    if intake.unserved:
        click.echo(UNSERVED, err=True)
