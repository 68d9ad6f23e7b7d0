"""`tokenfleet demo`: a newcomer's first sight."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from tokenfleet.cli.exits import Exit
from tokenfleet.cli.options import json_option, load_settings, logging_options, wants_json
from tokenfleet.cli.output import print_json
from tokenfleet.cli.vllm_options import vllm_options

if TYPE_CHECKING:
    from tokenfleet.demo.report import DemoReport
    from tokenfleet.demo.show import View
    from tokenfleet.up.commands import EngineName, FleetOptions

EXPECTED = {"llama": "Paris", "vllm": "Paris"}
"""Engine → what its answer must hold."""


class Options(TypedDict):
    """The options of `demo`, as click hands them over."""

    workers: int
    slots: int
    engine: "EngineName"
    model: str
    vllm_python: Path | None
    vllm_flags: tuple[str, ...]


@click.command("demo")
@click.option("--workers", type=click.IntRange(1, 16), default=2, show_default=True)
@click.option("--slots", type=click.IntRange(1), default=4, show_default=True, help="Requests at once on each worker.")
@click.option(
    "--engine",
    type=click.Choice(["llama", "sim", "vllm"]),
    default="llama",
    show_default=True,
    help="llama: a small real model on the CPU. sim: a simulated engine, which knows no capitals. vllm: see below.",
)
@click.option("--model", default="smollm2-135m", show_default=True, help="vllm: the name that it is served under.")
@vllm_options
@logging_options
@json_option
@click.pass_context
def command(context: click.Context, **options: Unpack[Options]) -> None:
    """See a whole fleet at work on this machine, in less than a minute.

    Starts a Valkey server, a scheduler and two workers with a small real model, runs a batch of 24 prompts with
    priority medium, and in the middle of it asks a question with priority high: its tokens stream while the batch goes
    on, and it overtakes the rows that wait. Then shows what happened and stops everything.

    \b
    Examples:
      tokenfleet demo
      tokenfleet demo --engine vllm --model smollm2-135m -- --model HuggingFaceTB/SmolLM2-135M-Instruct

    With vllm each worker has a GPU of its own, or a core where there is none; the flags after -- are vLLM's.

    With --json, the last line of stdout is one object: rows_in, rows_out, rows_failed, tokens_out, tokens_per_s,
    ttft_ms and queue_ms by priority, jobs_by_worker, answer, overtook. All else goes to stderr.

    \b
    Exit codes: 0 all rows are there and the answer is right, 2 not installed, 3 it is not,
    4 the fleet did not come up.
    """
    from rich.console import Console

    from tokenfleet.demo.report import as_json, as_tables
    from tokenfleet.demo.show import view_for
    from tokenfleet.up.commands import FleetOptions

    load_settings()
    fleet = FleetOptions(**options, log_level="warning")
    console = Console(stderr=wants_json(), highlight=False)
    report = asyncio.run(_watched(fleet, view_for(console), EXPECTED.get(fleet.engine, "")))
    console.print(as_tables(report))
    if wants_json():
        print_json(as_json(report))
    for problem in report.problems:
        click.secho(f"the demo failed: {problem}", fg="red", err=True)
    context.exit(Exit.FAILED if report.problems else Exit.CLEAN)


async def _watched(options: "FleetOptions", view: "View", expected: str) -> "DemoReport":
    """Run the demo in its view; Ctrl-C and SIGTERM leave nothing running."""
    from protocol.errors import WaitTimeout
    from tokenfleet.demo.run import Log, run_demo
    from tokenfleet.signals import interruptible

    log = Log()
    with view, interruptible():
        try:
            return await run_demo(options, view, log, expected)
        except WaitTimeout:
            for line in log.lines:
                view.note(line)
            raise
