"""`tokenfleet scheduler`: the dispatcher's process."""

import click

from tokenfleet.cli.options import load_settings, shared_options


@click.command("scheduler")
@click.option(
    "--pool", "pools", multiple=True, help="Serve this pool; give it several times. Without it: all that register."
)
@click.option("--policy", help="How workers are chosen: least-work (default) or load-score.")
@shared_options
def command(pools: tuple[str, ...], policy: str | None) -> None:
    """Run a scheduler: it assigns queued jobs to workers.

    Loads the function library into Redis (7.0 or later, or Valkey), then leads each shard or stands by. Run two for
    high availability: the other one leads within seconds. It owns nothing: killing it loses nothing.

    \b
    Examples:
      tokenfleet scheduler --redis-url redis://10.0.0.5:6379/0
      tokenfleet scheduler --pool llama-70b --policy load-score

    Limits, targets and the batch window are settings: see docs/architecture.md and tokenfleet.toml.

    \b
    Exit codes: 0 stopped by SIGTERM or Ctrl-C, 2 invalid setting, 4 Redis did not answer at the start.
    """
    settings = load_settings(policy=policy)
    from scheduler.process import main
    from tokenfleet.cli.parent import end_with_parent

    end_with_parent()
    main(settings, pools or None)
