"""`tokenfleet batch`: files of requests in the OpenAI batch format; one module a subcommand."""

import click

from tokenfleet.cli.app import Entry, LazyGroup


@click.group(
    "batch",
    cls=LazyGroup,
    entries={
        "run": Entry("tokenfleet.cli.batch.run", "Run each row of a file; write one output line for each."),
        "retry-failed": Entry("tokenfleet.cli.batch.retry_failed", "Run the rows again that failed or never ended."),
        "validate": Entry("tokenfleet.cli.batch.validate", "Tell every bad line of a file; run nothing."),
        "reconcile": Entry("tokenfleet.cli.batch.reconcile", "Prove that each row has exactly one line."),
    },
)
def command() -> None:
    """Run a file of requests in the OpenAI batch format."""
