"""What a Redis server says of itself: version, memory, durability, limits, who may come in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.call import Call

UNLIMITED = 0


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """From `INFO`; sizes in bytes."""

    product: str
    """`Redis` or `Valkey`."""
    version: tuple[int, ...]
    """The product's own."""
    speaks: tuple[int, ...]
    """The version of Redis whose commands it has."""
    replica: bool
    replicas: int
    """Connected to this primary."""
    used: int
    limit: int
    """0: none."""
    policy: str
    """What it does at its limit."""
    appends: bool
    """It has an append-only file."""
    writes_fail: bool
    """The last write to that file, or its last rewrite, failed."""


def server_facts() -> Call[ServerFacts]:
    """Ask for them alone: a user who may ask about the server may ask so. Redis before 7.0 takes one section."""
    return Call(("INFO", "server", "memory", "persistence", "replication"), _facts)


def server_facts_of_all() -> Call[ServerFacts]:
    """The same of all that the server tells: every version answers."""
    return Call(("INFO",), _facts)


def _facts(told: Mapping[str, Any]) -> ServerFacts:
    product = "Valkey" if "valkey_version" in told else "Redis"
    failing = "err" in (told.get("aof_last_write_status"), told.get("aof_last_bgrewrite_status"))
    return ServerFacts(
        product=product,
        version=_version(told.get("valkey_version") or told["redis_version"]),
        speaks=_version(told["redis_version"]),
        replica=told.get("role") == "slave",
        replicas=int(told.get("connected_slaves", 0)),
        used=int(told["used_memory"]),
        limit=int(told["maxmemory"]),
        policy=str(told["maxmemory_policy"]),
        appends=int(told["aof_enabled"]) == 1,
        writes_fail=failing,
    )


def _version(text: object) -> tuple[int, ...]:
    return tuple(int(part) for part in str(text).split(".") if part.isdigit())


@dataclass(frozen=True, slots=True)
class BufferLimit:
    """When a client that does not read is cut off: at once, or above the soft limit for so long. Bytes; 0: never."""

    hard: int
    soft: int
    soft_s: int


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """From `CONFIG GET`."""

    fsync: str
    """`always`, `everysec` or `no`."""
    pubsub: BufferLimit
    addresses: tuple[str, ...]
    """Where it listens; none: everywhere."""
    protected: bool
    """It refuses other hosts while its default user has no password."""


def server_config() -> Call[ServerConfig]:
    """Ask for it; many hosted servers refuse."""
    names = ("appendfsync", "client-output-buffer-limit", "bind", "protected-mode")
    return Call(("CONFIG", "GET", *names), _config)


def _config(reply: Sequence[bytes] | Mapping[Any, Any]) -> ServerConfig:
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    told = {_text(name): _text(value) for name, value in pairs}
    words = told["client-output-buffer-limit"].split()
    hard, soft, soft_s = (int(word) for word in words[words.index("pubsub") + 1 :][:3])
    addresses = tuple(address.lstrip("-") for address in told["bind"].split())
    return ServerConfig(
        told["appendfsync"], BufferLimit(hard, soft, soft_s), addresses, told["protected-mode"] == "yes"
    )


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def anyone_may_do_anything() -> Call[bool]:
    """Whether the user of those who do not log in has no password and all commands."""
    return Call(("ACL", "GETUSER", "default"), _is_open)


def _is_open(reply: Sequence[Any]) -> bool:
    told = dict(zip(map(_text, reply[::2]), reply[1::2], strict=True))
    flags = {_text(flag) for flag in told["flags"]}
    return {"on", "nopass"} <= flags and "+@all" in _text(told["commands"]).split()
