"""An embedded fleet for the length of a terminal session."""

import asyncio

import click

from tokenfleet.cli.output import print_json
from tokenfleet.signals import stop_event
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet
from tokenfleet.up.logs import LogView

READY_S = 120.0
"""The first start unpacks the model."""


async def serve(options: FleetOptions, *, as_json: bool, json_logs: bool) -> None:
    """Run a fleet until a signal comes.

    Raises:
        SetupError: something is not installed, or the data directory is in use.
        WaitTimeout: the fleet did not come up.
    """
    view = LogView(as_json=json_logs)
    fleet = EmbeddedFleet(options, on_line=view.line, on_death=view.note)
    with stop_event(on_second=fleet.end) as stop:
        async with fleet:
            if await _ready(fleet, stop):
                _announce(fleet, as_json=as_json)
                await stop.wait()
            click.echo("stopping; Ctrl-C again stops at once", err=True)


async def _ready(fleet: EmbeddedFleet, stop: asyncio.Event) -> bool:
    """Whether the fleet came up before it was told to stop."""
    ready, stopped = asyncio.create_task(fleet.ready(READY_S)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({ready, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
        return not stop.is_set()
    finally:
        ready.cancel()
        stopped.cancel()


def _announce(fleet: EmbeddedFleet, *, as_json: bool) -> None:
    options, where = fleet.options, str(fleet.data.path)
    if as_json:
        known = {"redis_url": fleet.redis_url, "model": options.model, "data": where, "pids": fleet.pids()}
        print_json({"ready": True, **known})
        return
    kept = "removed at the end; keep it with --data DIR" if fleet.data.temporary else "kept"
    click.secho(f"\ntokenfleet is up: {options.model} on {options.workers} workers", bold=True)
    click.echo(f"  Redis URL  {fleet.redis_url}\n  data       {where} ({kept})")
    click.echo("In another terminal:")
    if fleet.redis_url != _default_url():
        click.echo(f"  export TOKENFLEET_REDIS_URL={fleet.redis_url}")
    click.echo(f'  tokenfleet submit --model {options.model} --follow "What is the capital of France?"')
    click.echo("  tokenfleet status\nCtrl-C stops it.\n")


def _default_url() -> str:
    from protocol.settings import Settings

    return str(Settings.model_fields["redis_url"].default)
