"""`tokenfleet scheduler`: the dispatcher's process."""

from pathlib import Path

import click

from tokenfleet.cli.options import load_settings, metrics_options, shared_options


@click.command("scheduler")
@click.option(
    "--pool", "pools", multiple=True, help="Serve this pool; give it several times. Without it: all that register."
)
@click.option("--policy", help="How workers are chosen: predictive (default), or another by its name.")
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append each decision to this file, while it leads.",
)
@click.option(
    "--record-mb", type=click.IntRange(1), default=512, show_default=True, help="Stop recording at this size."
)
@metrics_options
@shared_options
def command(pools: tuple[str, ...], policy: str | None, record: Path | None, record_mb: int) -> None:
    """Run a scheduler: it assigns queued jobs to workers.

    Loads the function library into Redis (7.0 or later, or Valkey), then leads each shard or stands by. Run two for
    high availability: the other one leads within seconds. It owns nothing: killing it loses nothing.

    \b
    Examples:
      tokenfleet scheduler --redis-url redis://10.0.0.5:6379/0
      tokenfleet scheduler --pool llama-70b --policy least-work
      tokenfleet scheduler --record night.jsonl

    Limits, targets and the batch window are settings: see docs/architecture.md and tokenfleet.toml. With the setting
    scale=auto, the default, it promotes standby workers when online jobs would wait too long, and puts them back.

    Only the leader decides: beside another scheduler, such as that of `tokenfleet up`, nothing is recorded until it
    takes the lead.

    A recording holds what was seen and what was decided, with ids and sizes and no prompts. `tokenfleet replay` tells
    what another policy would have done.

    \b
    Exit codes: 0 stopped by SIGTERM or Ctrl-C, 2 invalid setting, 4 Redis did not answer at the start.
    """
    settings = load_settings(policy=policy)
    from scheduler.process import main
    from scheduler.record import Recording
    from tokenfleet.cli.parent import end_with_parent

    recording = Recording(record, record_mb) if record else None
    end_with_parent()
    main(settings, pools or None, recording)
