"""`tokenfleet keys`: API keys of the gateway."""

from typing import Any

import click

from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import json_option, shared_options, wants_json
from tokenfleet.cli.output import print_json

_COUNT = click.IntRange(0, 2**53)


@click.group("keys")
def command() -> None:
    """Create, list and revoke the API keys that the gateway asks for.

    Redis holds a hash of each key, with its tenant, what it may ask for, and its limits. The key itself is shown once.
    """


@command.command("create")
@click.option("--tenant", default="", help="Whose jobs it submits and sees; `default` by default.")
@click.option(
    "--priority",
    "priorities",
    multiple=True,
    type=click.Choice(["high", "medium", "low"]),
    help="May use this one only.",
)
@click.option("--model", "models", multiple=True, help="May ask for this model only. Repeat it, as --priority.")
@click.option("--requests", type=_COUNT, default=0, help="So many a minute; 0, the default, is no limit, as below.")
@click.option("--tokens", type=_COUNT, default=0, help="So many a minute, of prompts and answers.")
@click.option("--jobs", type=_COUNT, default=0, help="So many at once, waiting and running.")
@click.option("--bytes", "size", type=_COUNT, default=0, help="So many of the bodies of these jobs, in all.")
@click.option("--operator", is_flag=True, help="Sees all tenants' jobs on the live page, not their texts.")
@click.option("--note", default="", help="A line of your own, for the list.")
@shared_options
@json_option
def create(**given: Any) -> None:  # noqa: ANN401 - the options above
    """Create a key and print it: this once, since only its hash is kept.

    Limits count in each shard of each pool by itself, and are shared by all gateways. The rows of batches
    count in none. After a minute of silence a whole minute's
    worth can be had at once.

    \b
    Examples:
      tokenfleet keys create --tenant acme
      tokenfleet keys create --tenant acme --priority high --requests 60 --tokens 100000 --jobs 8 --note "web shop"

    The key goes to stdout, what it may to stderr. With --json, one object: `key` and what `keys list` has.

    \b
    Exit codes: 0 created, 2 a name or the note is not what it must be, 4 Redis is away.
    """
    from producer.keys import create_key
    from protocol.limits import Limits
    from protocol.states import Priority
    from tokenfleet.cli.keys_view import as_json, as_table

    limits = Limits(
        requests_a_minute=given["requests"], tokens_a_minute=given["tokens"], jobs=given["jobs"], bytes=given["size"]
    )
    priorities = [Priority(name) for name in given["priorities"]]
    what = {"tenant": given["tenant"], "models": given["models"], "note": given["note"], "operator": given["operator"]}
    secret, key = with_fleet(lambda fleet: create_key(fleet, priorities=priorities, limits=limits, **what))
    if wants_json():
        print_json({"key": secret, **as_json(key)})
        return
    from rich.console import Console

    Console(stderr=True).print(as_table([key]))
    click.echo(secret)


@command.command("list")
@shared_options
@json_option
def list_() -> None:
    """List all keys, the oldest first: by their ids and last four characters, never by themselves.

    \b
    Example:
      tokenfleet keys list

    With --json, one object a line: `id`, `last_four`, `tenant`, `priorities`, `models` (empty: all), `limits`
    (0: none), `operator`, `note`, `created_ms` and `revoked_ms` (Redis's clock; 0: it is good).

    \b
    Exit codes: 0 listed, 4 Redis is away.
    """
    from producer.keys import list_keys
    from tokenfleet.cli.keys_view import as_json, as_table

    found = with_fleet(list_keys)
    if wants_json():
        for key in found:
            print_json(as_json(key))
        return
    from tokenfleet.plain import print_drawn

    print_drawn(as_table(found))


@command.command("revoke")
@click.argument("key_id", metavar="ID")
@shared_options
@json_option
def revoke(key_id: str) -> None:
    """Make a key worthless for good, within a few seconds at every gateway. Jobs that it submitted go on.

    \b
    Example:
      tokenfleet keys revoke 3f2a91c07be45d18

    With --json, the object of `keys list`.

    \b
    Exit codes: 0 revoked, or it was, 2 no key has this id, 4 Redis is away.
    """
    from producer.keys import revoke_key
    from tokenfleet.cli.keys_view import as_json

    key = with_fleet(lambda fleet: revoke_key(fleet, key_id))
    if wants_json():
        print_json(as_json(key))
    else:
        click.echo(f"{key.id}  revoked")
