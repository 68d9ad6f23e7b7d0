"""A fleet whose every role has a Redis user of its own, from a file as `tokenfleet acl` prints it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from protocol.access import Role, acl_file, users
from tests.support.servers import Server

TENANTS, LABELS = ("acme", "evil"), ("worker-1",)
PASSWORD = "correct horse"


def roles() -> dict[str, Role]:
    return users(TENANTS, LABELS)


@contextmanager
def guarded(binary: Path, folder: Path, made: dict[str, Role]) -> Iterator[Server]:
    """A server with these users; all have the same password."""
    file = folder / "users.acl"
    file.write_text(acl_file(made, dict.fromkeys(["operator", *made], PASSWORD)))
    server = Server(binary, folder, extra=["--aclfile", str(file)])
    server.start()
    try:
        yield server
    finally:
        server.stop()


def url_of(server: Server, user: str) -> str:
    return server.url.replace("//", f"//{user}:{PASSWORD.replace(' ', '%20')}@")


def login(server: Server, user: str) -> Redis:
    """A blocking client; close it."""
    return Redis(port=server.port, username=user, password=PASSWORD, socket_timeout=10)


def denials(server: Server) -> list[str]:
    """What the server refused to its users so far, also where the code went on all the same."""
    with login(server, "operator") as operator:
        log = operator.execute_command("ACL", "LOG", "128")
        told = [{key.decode(): value for key, value in zip(entry[::2], entry[1::2], strict=True)} for entry in log]
    return [
        f"{entry['username']!r}: {entry['reason']!r} {entry['object']!r} in {entry['context']!r}"
        for entry in told
        if entry["username"] != b"default"
    ]
