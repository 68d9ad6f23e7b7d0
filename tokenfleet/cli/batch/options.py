"""The options that batch commands share: what each is called, does and takes, in one place."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from tokenfleet.cli.durations import long_duration
from tokenfleet.cli.options import json_option, shared_options, store_option

if TYPE_CHECKING:
    from producer.batch.options import OnInvalid, Order

Command = TypeVar("Command", bound=Callable[..., Any])


class RowOptions(TypedDict):
    """What `row_options` hand over."""

    model: str | None
    on_invalid: "OnInvalid"
    dedup: bool
    order: "Order"


class EndOptions(TypedDict):
    """What `end_options` hand over; `deadline` in seconds."""

    priority: str
    deadline: float | None
    max_errors: int | None


class SendOptions(TypedDict):
    """What `send_options` hand over."""

    window: int
    durable: bool


def row_options(command: Command) -> Command:
    """How the input's rows are taken: `--model`, `--on-invalid`, `--dedup`, `--order`."""
    model = click.option("--model", help="Run all rows on this model, whatever they name.")
    on_invalid = click.option(
        "--on-invalid",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="Lines that are no requests: refuse the file, or give them an error line.",
    )
    dedup = click.option("--dedup", is_flag=True, help="Rows with equal bodies at temperature 0 run once, for all.")
    order = click.option(
        "--order",
        type=click.Choice(["input", "completion"]),
        default="completion",
        show_default=True,
        help="Of the output lines; input: they are there at the end.",
    )
    return model(on_invalid(dedup(order(command))))


def end_options(deadline: str | None = None) -> Callable[[Command], Command]:
    """When a batch runs and when it is given up: `--priority`, `--deadline`, `--max-errors`."""
    priority = click.option(
        "--priority",
        type=click.Choice(["medium", "low"]),
        default="medium",
        show_default=True,
        help="medium: a batch; low: whenever there is room.",
    )
    until = click.option(
        "--deadline",
        type=long_duration,
        metavar="DURATION",
        default=deadline,
        show_default=True,
        help="Rows that have not ended by then expire, such as 6h; with its unit.",
    )
    errors = click.option(
        "--max-errors",
        type=click.IntRange(0),
        metavar="N",
        help="Give up once more than N rows have failed; lines that are no requests do not count.",
    )
    return lambda command: priority(until(errors(command)))


def send_options(command: Command) -> Command:
    """How a command that runs rows itself sends them: `--window`, `--durable`."""
    window = click.option(
        "--window", type=click.IntRange(1), default=512, show_default=True, help="Rows in Redis at once."
    )
    durable = click.option("--durable", is_flag=True, help="Submit each row until a replica or the disk has it.")
    return window(durable(command))


def service_options(command: Command) -> Command:
    """What all commands on submitted batches take, so that one set of flags serves them all: store, Redis, JSON."""
    return store_option(shared_options(json_option(command)))
