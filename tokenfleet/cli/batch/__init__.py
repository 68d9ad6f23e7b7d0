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
        "submit": Entry("tokenfleet.cli.batch.submit", "Submit a file to the batch runners."),
        "list": Entry("tokenfleet.cli.batch.list", "List submitted batches, the newest first."),
        "show": Entry("tokenfleet.cli.batch.show", "Show a submitted batch."),
        "watch": Entry("tokenfleet.cli.batch.watch", "Follow a submitted batch until it has ended."),
        "cancel": Entry("tokenfleet.cli.batch.cancel", "Cancel a submitted batch; what is done stays."),
        "results": Entry("tokenfleet.cli.batch.results", "Take a submitted batch's lines, also while it runs."),
        "delete": Entry("tokenfleet.cli.batch.delete", "Delete a batch that has ended, and its files."),
    },
)
def command() -> None:
    """Run a file of requests in the OpenAI batch format."""
