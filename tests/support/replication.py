"""A primary with replicas and the sentinels that watch them: real processes, on loopback."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.exceptions import BusyLoadingError

from tests.support.servers import Server, dying_with_us, free_port

SERVICE = "fleet"
DOWN_AFTER_MS = 500
"""A primary that is silent for so long is down for a sentinel."""


@dataclass(frozen=True)
class Tls:
    """What a group has that speaks TLS.

    Attributes:
        host: the name that stands in the certificate.
        options: for servers and sentinels alike: the certificate, its key, the CA.
    """

    host: str
    options: tuple[tuple[str, str], ...]

    def on(self, port: int) -> tuple[tuple[str, str], ...]:
        """All options of a process with this port; it speaks TLS to the others too. A name may mean either loopback."""
        own = (("tls-port", str(port)), ("tls-replication", "yes"), ("bind", "127.0.0.1 -::1"))
        return (*self.options, *own)


class Member(Server):
    """A server of a group. One with TLS has a plain port beside it, which only the test itself uses."""

    def __init__(
        self, binary: Path, folder: Path, tls: Tls | None, *, append_only: bool, extra: Sequence[str] = ()
    ) -> None:
        own = free_port() if tls else 0
        options = (*tls.on(own), ("replica-announce-ip", tls.host)) if tls else ()
        flags = [word for name, value in options for word in (f"--{name}", *value.split())]
        super().__init__(binary, folder, append_only=append_only, extra=[*flags, *extra])
        self.told_port = own or self.port
        """Where others are told to find it."""


class Sentinel(Server):
    """One sentinel; it writes what it learns into its configuration file."""

    def __init__(self, binary: Path, folder: Path, primary_port: int, quorum: int, tls: Tls | None = None) -> None:
        super().__init__(binary, folder)
        self.told_port = free_port() if tls else self.port
        names = ("resolve-hostnames yes", "announce-hostnames yes", f"announce-ip {tls.host}") if tls else ()
        lines = (
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            *(f"{name} {value}" for name, value in (tls.on(self.told_port) if tls else ())),
            *(f"sentinel {name}" for name in names),
            f"sentinel monitor {SERVICE} {tls.host if tls else '127.0.0.1'} {primary_port} {quorum}",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 2000",
        )
        configuration = folder / "sentinel.conf"
        configuration.write_text("\n".join(lines) + "\n")
        self._command = [*dying_with_us(), str(binary), str(configuration), "--sentinel"]

    def primary_port(self) -> int:
        with self.client() as client:
            found = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
            return int(found[1])

    def failover(self) -> None:
        """Have a replica promoted though nothing is wrong."""
        with self.client() as client:
            client.execute_command("SENTINEL", "FAILOVER", SERVICE)

    def sees(self) -> tuple[int, int]:
        """How many replicas that are up, and how many other sentinels."""
        with self.client() as client:
            replicas = client.execute_command("SENTINEL", "REPLICAS", SERVICE)
            return sum(map(_is_up, replicas)), len(client.execute_command("SENTINEL", "SENTINELS", SERVICE))


def _is_up(replica: list[bytes]) -> bool:
    """Flags beside `slave` say what is wrong with it."""
    return dict(zip(replica[::2], replica[1::2], strict=True))[b"flags"] == b"slave"


class Group:
    """A primary, a replica and three sentinels; either server can be the primary."""

    def __init__(self, binary: Path, folder: Path, *, append_only: bool = False, tls: Tls | None = None) -> None:
        folders = [folder / name for name in ("a", "b", "s0", "s1", "s2")]
        for each in folders:
            each.mkdir()
        quick = ("--repl-diskless-sync-delay", "0", "--repl-timeout", "10")
        self._host = tls.host if tls else "127.0.0.1"
        self._scheme = "rediss" if tls else "redis"
        first = Member(binary, folders[0], tls, append_only=append_only, extra=quick)
        follows = ("--replicaof", self._host, str(first.told_port), *quick)
        self.servers = [first, Member(binary, folders[1], tls, append_only=append_only, extra=follows)]
        self.sentinels = [Sentinel(binary, each, first.told_port, 2, tls) for each in folders[2:]]

    @property
    def url(self) -> str:
        hosts = ",".join(f"{self._host}:{sentinel.told_port}" for sentinel in self.sentinels)
        return f"{self._scheme}+sentinel://{hosts}/{SERVICE}/0"

    def start(self) -> None:
        for server in self.servers:
            server.start()
        self.servers[0].wait_until(lambda: online_replicas(self.servers[0]) == 1)
        self.servers[0].load_library()
        for sentinel in self.sentinels:
            sentinel.start()
        self.until_whole()

    def stop(self) -> None:
        for process in (*self.sentinels, *self.servers):
            if process.running:
                process.kill()

    @property
    def primary(self) -> Member:
        """Whom the sentinels name."""
        port = self.sentinels[0].primary_port()
        return next(server for server in self.servers if server.told_port == port)

    @property
    def replica(self) -> Member:
        primary = self.primary
        return next(server for server in self.servers if server is not primary)

    def until_whole(self) -> None:
        """Wait until every sentinel sees a replica and the other sentinels, and the replica is up to date."""
        self.until(lambda: all(sentinel.sees() == (1, 2) for sentinel in self.sentinels))
        self.until(lambda: online_replicas(self.primary) == 1)

    def rejoin(self, server: Server) -> None:
        """Start a killed server as the replica of whoever is the primary now."""
        server.start()
        with server.client() as client:
            client.replicaof(self._host, self.primary.told_port)
        server.wait_until(lambda: _has_all(server))
        self.until_whole()

    def until(self, ready: Callable[[], bool]) -> None:
        self.sentinels[0].wait_until(ready)


def _has_all(replica: Server) -> bool:
    """Whether it has copied its primary's data; until then it forgets its own."""
    with replica.client() as client:
        try:
            told: Any = client.info("replication")
        except BusyLoadingError:
            return False
        return bool(told["role"] == "slave" and told["master_link_status"] == "up")


def online_replicas(server: Server) -> int:
    with server.client() as client:
        told = client.info("replication")
        return sum(isinstance(value, dict) and value["state"] == "online" for value in told.values())
