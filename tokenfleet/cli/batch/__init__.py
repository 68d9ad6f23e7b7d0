"""`tokenfleet batch`: files of requests in the OpenAI batch format; one module a subcommand."""

import click

from tokenfleet.cli.app import Entry, LazyGroup


@click.group(
    "batch",
    cls=LazyGroup,
    entries={
        "run": Entry("tokenfleet.cli.batch.run", "Run each row of a file; write one output line for each."),
        "retry-failed": Entry("tokenfleet.cli.batch.retry_failed", "Run the rows again that failed or never ended."),
    },
)
def command() -> None:
    """Run a file of requests in the OpenAI batch format."""
