"""`tokenfleet top`: the fleet, live, in a terminal."""

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.durations import duration
from tokenfleet.cli.options import json_option, load_settings, shared_options, wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from producer.fleet import Fleet
    from producer.overview import Overview
    from protocol.settings import Settings

BETWEEN_S = 1.0
"""Speeds come of two looks: `--once` takes them so far apart."""
LEAST_S = 0.1


@click.command("top")
@click.option("--every", type=duration, default="1s", show_default=True, help="How often to look, 100ms or more.")
@click.option("--once", is_flag=True, help="Print what is seen once, and end.")
@shared_options
@json_option
def command(every: float, once: bool) -> None:  # noqa: FBT001 - click's signature
    """Watch the fleet: lanes, each worker's load and speed, batches. Read-only; q or Ctrl-C ends it.

    \b
    Examples:
      tokenfleet top
      tokenfleet top --every 5s
      tokenfleet top --once --json | jq .tokens_per_s

    \b
    What is shown:
      tokens/s     output tokens, by the engines' own counts over the last five seconds
      first token  from an attempt's start on its engine, of the last minute
      lanes        jobs that wait, and for how long the oldest one has
      load         the score that the worker publishes: 0.4 memory + 0.3 running/capacity + 0.3 KV cache
      jobs         held of slots; run and wait are requests on the engine; kv is the share of the KV cache in use
      left         when a batch's rows are done at this pace

    A - says that nobody tells. Where there are more workers than lines, those that are not active come first. While
    Redis is away, or no scheduler leads, a red line says so. With TOKENFLEET_TENANT, of batches and jobs only that
    tenant's are shown.

    With --json one object a line, each time: `now_ms`, `tokens_per_s`, `first_tokens`, `dead`, `shards`, each with
    `led`, `lanes` and `workers`, and `batches`.

    \b
    Exit codes: 0 shown, or ended by q or Ctrl-C; 2 no terminal, and neither --once nor --json; 4 Redis is away (with
    --once or --json; the screen waits for it), or its user may not look.
    """
    if every < LEAST_S:
        raise click.UsageError("--every: 100ms or more")
    if once or wants_json():
        with_fleet(lambda fleet: _print(fleet, BETWEEN_S if once else every, once=once))
        return
    if not sys.stdout.isatty():
        raise click.UsageError("stdout is no terminal: add --once or --json")
    asyncio.run(_watch(load_settings(), every))


async def _print(fleet: "Fleet", every_s: float, *, once: bool) -> None:
    from producer.overview_reader import OverviewReader

    reader = OverviewReader(fleet.redis)
    first = True
    while True:
        seen = (await reader.look()).seen_by(fleet.scope)
        if not (once and first):
            _show(seen, fleet.settings)
        if once and not first:
            return
        first = False
        await asyncio.sleep(every_s)


def _show(seen: "Overview", settings: "Settings") -> None:
    if wants_json():
        print_json(seen.to_json())
        return
    from datetime import datetime

    from rich.console import Console

    from protocol import store
    from tokenfleet.top.view import Moment, screen

    console = Console(highlight=False)
    moment = Moment(store.redacted(settings.store_url), datetime.now().astimezone(), seen)
    # A script's output has no last line: everything is shown.
    console.print(screen(moment, console.width, sys.maxsize))


async def _watch(settings: "Settings", every_s: float) -> None:
    from rich.console import Console

    from producer.fleet import Fleet
    from producer.overview_reader import OverviewReader
    from protocol import store
    from tokenfleet.top.watch import watch

    async with Fleet(settings=settings) as fleet:
        reader = OverviewReader(fleet.redis)

        async def look() -> "Overview":
            return (await reader.look()).seen_by(fleet.scope)

        await watch(look, store.redacted(settings.store_url), every_s, Console(highlight=False))
