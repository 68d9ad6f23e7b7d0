"""`tokenfleet acl`: the Redis users of a fleet."""

from typing import IO

import click

from protocol.errors import SetupError


@click.command("acl")
@click.option("--tenant", "tenants", multiple=True, help="Make a producer and a subscriber for this tenant. Repeat it.")
@click.option("--worker", "workers", multiple=True, help="Make a user for the worker with this --label. Repeat it.")
@click.option(
    "--passwords",
    type=click.File("r"),
    help="Lines of USER PASSWORD, `-` for stdin. A user that has none here can't log in.",
)
def command(tenants: tuple[str, ...], workers: tuple[str, ...], passwords: IO[str] | None) -> None:
    """Print an ACL file for Redis 7 or Valkey: one user a role, each with the least rights that do its work.

    Passwords come out as hashes. Give the file to the server as `--aclfile`, and each role its user in
    TOKENFLEET_REDIS_URL and its password in TOKENFLEET_REDIS_PASSWORD_FILE.

    \b
    Users:
      operator           everything, also ACL LOAD
      scheduler, metrics one each
      gateway            submits and reads for all tenants
      runner             runs the batches of all tenants
      producer-TENANT    submits, and reads what is its tenant's
      subscriber-TENANT  only reads what is its tenant's
      worker-LABEL       the worker that was started with --label LABEL
      default            whoever does not log in: may only ask whether the server is up

    \b
    Examples:
      tokenfleet acl --tenant acme --worker gpu-0 --worker gpu-1 --passwords secrets.txt > users.acl

    \b
    Exit codes: 0 printed, 2 a name or the passwords are not what they must be.
    """
    from protocol.access import acl_file, users

    click.echo(acl_file(users(tenants, workers), _read(passwords)), nl=False)


def _read(lines: IO[str] | None) -> dict[str, str]:
    found = {}
    for number, line in enumerate(lines or (), 1):
        if not line.strip():
            continue
        user, _, password = line.strip().partition(" ")
        if not password.strip():
            raise SetupError(f"line {number} of the passwords has no password", "Each line reads USER PASSWORD.")
        found[user] = password.strip()
    return found
