"""`tokenfleet batch-runner`: the process that runs submitted batches."""

from pathlib import Path

import click

from tokenfleet.cli.connection import naming_redis
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

    \b
    Environment:
      TOKENFLEET_STORE            the folder of batches' files, if not --store
      TOKENFLEET_REDIS_URL        where Redis listens, if not --redis-url
      TOKENFLEET_REDIS_PASSWORD   its password; or …_PASSWORD_FILE, which names a file
      TOKENFLEET_REDIS_PATIENCE_S how long Redis is waited for at the start (30)
      TOKENFLEET_TENANT           runs this tenant's batches only
      TOKENFLEET_BATCH_LEASE_S    a batch whose runner is silent for so long goes to another (5)
      TOKENFLEET_BATCH_KEEP_S     ended batches go after so long (30 days), with what they read and wrote; and
                                  files that no batch has used
      TOKENFLEET_WEBHOOK_URL      is told the end of each batch, as standardwebhooks.com has it
      TOKENFLEET_WEBHOOK_SECRET   signs that, whsec_…; or …_SECRET_FILE, which names a file
      TOKENFLEET_WEBHOOK_RETRY_S  the first pause before it is told again (5)

    \b
    Examples:
      tokenfleet batch-runner --store /srv/batches
      tokenfleet batch-runner --store /srv/batches --concurrency 16 --redis-url redis://10.0.0.5:6379/0

    \b
    Exit codes: 0 stopped by SIGTERM or Ctrl-C, 2 no store, an invalid setting, or arq (tokenfleet[batch]) is missing,
    4 Redis did not answer at the start.
    """
    settings = load_settings(store=store)
    from protocol.store import redacted
    from tokenfleet.cli.parent import end_with_parent
    from tokenfleet.runner.process import main

    end_with_parent()
    # Once Redis has answered, its absence is waited out.
    with naming_redis(redacted(settings.store_url)):
        main(settings, concurrency)
