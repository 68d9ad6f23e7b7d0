"""`tokenfleet status`: lanes and workers."""

import click

from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import json_option, shared_options, wants_json
from tokenfleet.cli.output import print_json


@click.command("status")
@shared_options
@json_option
def command() -> None:
    """Show each pool: how many jobs wait in each lane and for how long, and what its workers do.

    \b
    Example:
      tokenfleet status

    \b
    In the table of workers:
      state   active takes jobs; the others are explained by `tokenfleet workers list --help`
      jobs    held of slots
      load    the score that the worker publishes: 0.4 memory + 0.3 running/capacity + 0.3 KV cache
      kv      share of the KV cache in use; - when the engine does not tell
      report  its age

    A worker that serves some of its pool's models only, as with LoRA adapters, is named below the table.

    With --json, one object: `now_ms` and `shards`, each with `lanes`, `workers`, `due`, `dead`, and, for an autoscaler:
    `workers_wanted`, as many active workers as would meet the targets with ease, and `cold_start_s`, how long a worker
    loads before it serves. Both are null while no scheduler leads the shard; `cold_start_s` too before one was seen.

    \b
    Exit codes: 0 shown, 4 Redis is away.
    """
    status = with_fleet(lambda fleet: fleet.status())
    from tokenfleet.cli.status_view import as_json, as_tables

    if wants_json():
        print_json(as_json(status))
        return
    from tokenfleet.plain import print_drawn

    print_drawn(as_tables(status))
