"""Tells people who wait for a batch that nobody runs it."""

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from protocol.errors import FleetError

if TYPE_CHECKING:
    from producer.fleet import Fleet


async def tell_if_none(fleet: "Fleet") -> None:
    """Say on stderr that no batch runner is there; nothing where that can't be known."""
    with suppress(FleetError):
        if not await fleet.batches.has_runner():
            click.echo("no batch runner is there: the batch waits until one is, `tokenfleet batch-runner`", err=True)
