"""Tells people who wait for a batch that nobody runs it."""

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from protocol.errors import FleetError
from tokenfleet.cli.batch.unserved import none_serves

if TYPE_CHECKING:
    from producer.fleet import Fleet
    from protocol.batches import BatchRecord


async def tell_if_none(fleet: "Fleet") -> None:
    """Say on stderr that no batch runner is there; nothing where that can't be known."""
    with suppress(FleetError):
        if not await fleet.batches.has_runner():
            click.echo("no batch runner is there: the batch waits until one is, `tokenfleet batch-runner`", err=True)


async def tell_if_unserved(fleet: "Fleet", record: "BatchRecord") -> None:
    """Say on stderr that no active worker serves the model of a batch that runs; nothing where that can't be known."""
    from producer.workers import is_served
    from protocol.batches import BatchStatus

    model = record.model or record.spec.model
    with suppress(FleetError):
        if model and record.status is BatchStatus.IN_PROGRESS and not await is_served(fleet.redis, model):
            click.echo(none_serves(model), err=True)
