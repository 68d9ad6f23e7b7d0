"""`tokenfleet batch-runner`: the process that runs submitted batches."""

from pathlib import Path

import click

from tokenfleet.cli.options import load_settings, metrics_options, shared_options


@click.command("batch-runner")
@click.option("--store", type=click.Path(file_okay=False, path_type=Path), help="The folder of batches' files.")
@click.option(
    "--concurrency", type=click.IntRange(1, 48), default=4, show_default=True, help="Batches that run at once here."
)
@metrics_options
@shared_options
def command(store: Path | None, concurrency: int) -> None:
    """Run the batches that were submitted with `tokenfleet batch submit`.

    Start as many as you like, on hosts that share the folder of the store: each batch has one owner, by a lease of
    a few seconds. When a runner is killed, another goes on where it stopped, and repeats no finished row. SIGTERM
    hands over at once; jobs that run go on.

    The end of each batch is told to the webhook in TOKENFLEET_WEBHOOK_URL, signed with the secret in
    TOKENFLEET_WEBHOOK_SECRET (or the file that …_SECRET_FILE names), as standardwebhooks.com has it.
    Ended batches and files are deleted after TOKENFLEET_BATCH_KEEP_S seconds, 30 days by default.

    \b
    Examples:
      tokenfleet batch-runner --store /srv/batches
      tokenfleet batch-runner --store /srv/batches --concurrency 16 --redis-url redis://10.0.0.5:6379/0

    \b
    Exit codes: 0 stopped by SIGTERM or Ctrl-C, 2 no store, an invalid setting, or arq (tokenfleet[batch]) is missing,
    4 Redis did not answer at the start.
    """
    settings = load_settings(store=store)
    from tokenfleet.cli.parent import end_with_parent
    from tokenfleet.runner.process import main

    end_with_parent()
    main(settings, concurrency)
