"""The command `tokenfleet`: finds a subcommand, runs it, and turns what went wrong into a message and an exit code."""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn

import click

from protocol.errors import FleetError
from tokenfleet.cli.exits import Exit, exit_of, explained
from tokenfleet.cli.output import print_error, print_interrupted
from tokenfleet.cli.streams import guarded, noticing


class Entry(NamedTuple):
    """A subcommand that is not loaded yet: its module, which holds it as `command`, and its line in the overview."""

    module: str
    summary: str


class LazyGroup(click.Group):
    """A group that loads a subcommand's module when it is called, not when help is shown."""

    def __init__(self, *args: Any, entries: dict[str, Entry] | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - click's own signature
        """Take the subcommands as a table."""
        super().__init__(*args, **kwargs)
        self.entries = entries or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table, which is the order in which people meet them."""
        del ctx
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one subcommand; None when there is no such name."""
        del ctx
        entry = self.entries.get(cmd_name)
        return getattr(import_module(entry.module), "command", None) if entry else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand that the first word names; the error for an unknown one names those that are like it."""
        if not ctx.resilient_parsing and args[0] not in self.entries and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.entries)
            also = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{also}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.entries[name].summary) for name in self.list_commands(ctx)])


class App(LazyGroup):
    """The outermost group: no typed error leaves it as a traceback, and each end has an exit code of the table."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:  # noqa: ANN401 - click's own signature
        """Run the command line and exit."""
        given = list(sys.argv[1:] if args is None else args)
        fill_standard_streams()
        with guarded():
            code = self._ended(given, extra)
        sys.exit(code)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401 - click's own signature
        """Parse the words of the command line; help is printed here."""
        with noticing():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        """Run the subcommand."""
        with noticing():
            return super().invoke(ctx)

    def _ended(self, args: list[str], extra: dict[str, Any]) -> int:
        """The exit code of a command line, once its error is told."""
        # Looked for in the words themselves: when they can't be parsed, no option is known yet.
        as_json = "--json" in takewhile("--".__ne__, args)
        try:
            code = super().main(args, **extra | {"standalone_mode": False})
        except FleetError as error:
            print_error(error, as_json=as_json)
            return exit_of(error)
        except click.ClickException as error:
            if as_json:
                print_error(Usage(error.format_message()), as_json=True)
            else:
                error.show()
            return Exit.INVALID
        except click.Abort:
            print_interrupted(as_json=as_json)
            return Exit.INTERRUPTED
        return code if isinstance(code, int) else Exit.CLEAN


def fill_standard_streams() -> None:
    """Put the null device where stdin, stdout or stderr were closed before the process began.

    Or the next file or socket gets their number, and is taken for them: uvloop aborts when it closes one. Python knows
    by then that they are closed: `sys.stdin` and its like stay None.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


class Usage(FleetError):
    """The command line itself is wrong."""

    code = "usage"


EPILOG = f"""\b
Settings come from flags, then TOKENFLEET_… variables, then tokenfleet.toml (or the file in TOKENFLEET_CONFIG).

\b
Exit codes:
{explained()}

\b
A first look:  tokenfleet demo
A fleet:       tokenfleet up
"""


@click.group(
    cls=App,
    entries={
        "demo": Entry("tokenfleet.cli.demo", "See a whole fleet at work: a batch, and a chat that overtakes it."),
        "up": Entry("tokenfleet.cli.up", "Run a whole fleet in this terminal: server, scheduler, workers."),
        "scheduler": Entry("tokenfleet.cli.scheduler", "Run a scheduler for one or more pools."),
        "worker": Entry("tokenfleet.cli.worker", "Run a worker: one engine that serves one model."),
        "submit": Entry("tokenfleet.cli.submit", "Submit a job; print its handle, its tokens or its result."),
        "follow": Entry("tokenfleet.cli.follow", "Print a job's tokens as they come."),
        "cancel": Entry("tokenfleet.cli.cancel", "Cancel a job, wherever it is."),
        "job": Entry("tokenfleet.cli.job", "Show where a job is and how it got there."),
        "explain": Entry("tokenfleet.cli.explain", "Say why a job waits, or why it ran where it did."),
        "status": Entry("tokenfleet.cli.status", "Show lanes and workers."),
        "top": Entry("tokenfleet.cli.top", "Watch lanes, workers and batches live in the terminal."),
        "doctor": Entry("tokenfleet.cli.doctor", "Check a set-up, and say what to change."),
        "workers": Entry("tokenfleet.cli.workers", "Show workers; promote, rest, sleep, wake or drain one."),
        "dead": Entry("tokenfleet.cli.dead", "List, show and replay jobs that were set aside."),
        "simulate": Entry("tokenfleet.cli.simulate", "Try a fleet, a load or a policy out, in virtual time."),
        "replay": Entry("tokenfleet.cli.replay", "Ask another policy what it would have done with recorded decisions."),
        "batch": Entry("tokenfleet.cli.batch", "Run a file of requests (OpenAI batch format)."),
        "batch-runner": Entry("tokenfleet.cli.batch_runner", "Run the batches that were submitted."),
        "gateway": Entry("tokenfleet.cli.gateway", "Serve OpenAI's API over HTTP in front of a fleet."),
        "keys": Entry("tokenfleet.cli.keys", "Create, list and revoke the API keys of the gateway."),
        "acl": Entry("tokenfleet.cli.acl", "Print the Redis users of a fleet, one a role."),
    },
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="tokenfleet", message="%(prog)s %(version)s")
def cli() -> None:
    """A message-queue worker fleet for LLM inference.

    Producers submit prioritised jobs to Redis, a scheduler assigns them to workers by their load, and tokens stream
    back while they are made.
    """
