"""What commands print: JSON lines or text on stdout, errors on stderr."""

import click

from protocol.errors import FleetError
from tokenfleet.terminal import harmless


def print_json(value: object, *, err: bool = False) -> None:
    """One JSON value on a line of stdout, or of stderr, at once."""
    from protocol import wire

    click.echo(wire.dumps(value), err=err)


def print_interrupted(told: object = None, *, as_json: bool, err: bool = False) -> None:
    """Say so on stderr; as JSON, `told` or an error object is the last line of stdout, with `err` of stderr."""
    click.echo("interrupted", err=True)
    if as_json:
        print_json(told or {"error": {"code": "interrupted", "message": "interrupted", "hint": ""}}, err=err)


def print_error(error: FleetError, *, as_json: bool, err: bool = False) -> None:
    """The error as `error: message` and its hint on stderr, or as one JSON object on stdout; with `err` on stderr."""
    if as_json:
        # A name that is no text, as a command line can bring one, can't be JSON.
        message, hint = (text.encode(errors="backslashreplace").decode() for text in (error.message, error.hint))
        print_json({"error": {"code": error.code, "message": message, "hint": hint}}, err=err)
        return
    click.echo(f"{click.style('error:', fg='red', bold=True)} {harmless(error.message)}", err=True)
    if error.hint:
        click.echo(harmless(error.hint), err=True)
