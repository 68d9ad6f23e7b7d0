"""`tokenfleet doctor`: is this set up as it should be?"""

import asyncio
from typing import TYPE_CHECKING

import click

from tokenfleet.cli.exits import Exit
from tokenfleet.cli.options import json_option, load_settings, shared_options, store_option, wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from protocol.settings import Settings
    from tokenfleet.doctor.finding import Finding

ROLES = ("producer", "subscriber", "worker", "scheduler", "gateway", "runner", "metrics")


@click.command("doctor")
@click.option("--role", type=click.Choice(ROLES), help="What the Redis user of this host is to do; else by its name.")
@store_option
@shared_options
@json_option
@click.pass_context
def command(context: click.Context, role: str | None) -> None:
    """Check Redis, this host and the fleet, and say what to change. Nothing is changed.

    \b
    Examples:
      tokenfleet doctor
      tokenfleet doctor --role worker
      tokenfleet doctor --json | jq -r '.findings[] | select(.level == "fail") | .advice'

    \b
    What is checked:
      reach, clock     how far away Redis is, and how far its clock is from this host's
      network, door    TLS and a password where they are needed
      version, primary, memory, eviction, aof, fsync, buffers
                       Redis itself; some of it only its operator's user may see
      acl              whether the Redis user that is used here may do its role's work, asked right by right
      library          the function library, and whether it is this version's
      leader, standby  a scheduler that leads each shard, and one that would take over
      workers, silent, engine, models
                       by the workers' reports: who takes jobs, is not heard, has no engine; models that nobody serves
      dead             jobs that were set aside
      store            the folder of batches' files

    With --json one object: `ok`, and `findings`, each with `check`, `level` (ok, warn or fail), `said` and `advice`.

    \b
    Exit codes: 0 nothing fails, 1 something does, Redis that does not answer too, 2 a setting is malformed.
    """
    settings = load_settings()
    findings = asyncio.run(_examine(settings, role or ""))
    from tokenfleet.doctor.view import as_json, as_text, is_well

    if wants_json():
        print_json(as_json(findings))
    else:
        from protocol import store
        from tokenfleet.plain import print_drawn

        print_drawn(as_text(findings, store.redacted(settings.store_url)))
    context.exit(Exit.CLEAN if is_well(findings) else Exit.UNWELL)


async def _examine(settings: "Settings", role: str) -> "list[Finding]":
    from protocol import store
    from tokenfleet.doctor.examine import examine

    redis = store.connect(settings.store_url)
    try:
        return await examine(redis, settings, role=role)
    finally:
        await redis.aclose()
