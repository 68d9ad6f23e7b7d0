"""`tokenfleet batch watch`: a submitted batch until its end."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import click

from tokenfleet.cli.batch.options import service_options
from tokenfleet.cli.batch.runners import tell_if_none
from tokenfleet.cli.batch.unserved import Unserved
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from producer.batch.progress import Progress
    from producer.fleet import Fleet
    from protocol.batches import BatchRecord


@click.command("watch")
@click.argument("batch_id", metavar="BATCH")
@service_options
@click.pass_context
def command(context: click.Context, batch_id: str) -> None:
    """Print where a submitted batch stands whenever that changes, until it has ended. Ctrl-C: the batch goes on.

    Beside the rows: how fast they end, when the batch will be done at this pace, and on stderr a warning as soon as
    that is after its deadline; at the end, the average pace and the tokens.

    \b
    Example:
      tokenfleet batch watch batch_5a1e3017c0f11a49ae811bd0

    With --json, the batch as OpenAI's API shows it, a line each time.

    \b
    Exit codes: 0 completed without a failed row, 2 no such batch, 3 some rows failed, or it failed, expired or was
    cancelled, 4 Redis is away, 130 interrupted.
    """
    from tokenfleet.cli.batch.view import exit_of, problems

    record = with_fleet(lambda fleet: _watch(fleet, batch_id))
    if not wants_json():
        for problem in problems(record):
            click.echo(problem)
    context.exit(exit_of(record))


async def _watch(fleet: "Fleet", batch_id: str) -> "BatchRecord":
    from rich.console import Console

    from producer.batch.progress import Watcher
    from protocol.batches import BatchStatus
    from tokenfleet.batch_progress import LateWarning

    watcher, last, now_s = None, None, await _clock(fleet)
    warning = LateWarning(Console(stderr=True, highlight=False, markup=False, emoji=False))
    unserved = Unserved(fleet, partial(click.echo, err=True), now_s)
    async for record in fleet.batches.watch(batch_id, each=True):
        if last is None and not record.status.terminal:
            await tell_if_none(fleet)
        news = None
        if record.status is BatchStatus.IN_PROGRESS:
            watcher = watcher or Watcher(record, now_s())
            # A batch that stands still is late some time too.
            warning.look(news := watcher.look(record, now_s()))
            await unserved.look(news)
        if record != last:
            _print(record, news)
        last = record
    return record


def _print(record: "BatchRecord", news: "Progress | None") -> None:
    from tokenfleet.cli.batch.view import end_line, progress_line

    if wants_json():
        print_json(record.as_json())
    else:
        click.echo(end_line(record) if record.status.terminal else progress_line(record, news))


async def _clock(fleet: "Fleet") -> "Callable[[], float]":
    """Redis's time, by which batches expire; in seconds since 1970."""
    from protocol.call import patiently, run
    from protocol.reads import store_time_ms

    loop = asyncio.get_running_loop()
    now_ms = await patiently(lambda: run(fleet.redis, store_time_ms()), fleet.settings.redis_patience_s)
    ahead_s = now_ms / 1000 - loop.time()
    return lambda: loop.time() + ahead_s
