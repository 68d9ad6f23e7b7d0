"""All that a Redis holds at one moment, and what may stay there: the key-leak check."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from redis import Redis

from protocol import keys
from protocol.batches import BatchStatus
from protocol.states import State

_READERS: dict[str, tuple[str, ...]] = {
    "string": ("GET",),
    "hash": ("HGETALL",),
    "zset": ("ZRANGE", "0", "-1", "WITHSCORES"),
    "stream": ("XRANGE", "-", "+"),
    "set": ("SMEMBERS",),
}
_KEY = re.compile(r"tf:\{(?P<shard>[^}]+)\}:(?P<kind>[a-z]+)(?::(?P<name>.+))?\Z")
_PERMANENT = frozenset(
    {"clock", "events", "lane", "due", "deadlines", "dead", "workers", "fleet", "living", "ended", "hooks", "arq"}
)


@dataclass(frozen=True)
class Entry:
    """One key's value, and whether it ends by itself."""

    expires: bool
    value: Any


@dataclass(frozen=True)
class Snapshot:
    """Every key of a Redis, decoded: strings, hashes as dicts, sorted sets as member → score, streams as entries."""

    entries: Mapping[str, Entry]

    @cached_property
    def shards(self) -> list[str]:
        return sorted({shard for shard, _ in self._kinds})

    def value(self, key: str, default: Any = None) -> Any:
        entry = self.entries.get(key)
        return default if entry is None else entry.value

    def of_kind(self, shard: str, kind: str) -> Mapping[str, Entry]:
        """Name → entry of the shard's keys of one kind, as `job`, `inbox` or `tenant`."""
        return self._kinds.get((shard, kind), {})

    @cached_property
    def _kinds(self) -> Mapping[tuple[str, str], Mapping[str, Entry]]:
        kinds: dict[tuple[str, str], dict[str, Entry]] = {}
        for key, entry in self.entries.items():
            if parts := _parts(key):
                shard, kind, name = parts
                kinds.setdefault((shard, kind), {})[name] = entry
        return kinds

    def leaks(self) -> list[str]:
        """Keys that neither expire, nor belong to something alive, nor are permanent."""
        return [key for key, entry in self.entries.items() if not entry.expires and not self._may_stay(key)]

    @cached_property
    def _living(self) -> frozenset[tuple[str, str]]:
        """Shard and name of each job that has not ended."""
        shards = self.shards
        found = {(shard, name): job.value for shard in shards for name, job in self.of_kind(shard, "job").items()}
        return frozenset(
            job for job, value in found.items() if isinstance(value, dict) and not State(value["state"]).terminal
        )

    def _may_stay(self, key: str) -> bool:
        parts = _parts(key)
        if parts is None:
            return key in (keys.MODELS, keys.API_KEYS)
        shard, kind, name = parts
        start = f"tf:{{{shard}}}:"
        if kind in _PERMANENT:
            return True
        if kind in ("job", "body", "tokens"):
            return (shard, name) in self._living
        if kind in ("worker", "inbox", "prefixes"):
            return name in self.value(f"{start}workers", {})
        if kind in ("tenant", "bucket"):
            counts = {field: n for field, n in self.value(key).items() if field.startswith("q:") or field == "jobs"}
            return any(int(n) > 0 for n in counts.values())
        return self._is_of_a_batch(key, kind, name)

    def _is_of_a_batch(self, key: str, kind: str, name: str) -> bool:
        """One that has not ended; and a tenant's list of those that are still known."""
        if kind == "batch":
            return not BatchStatus(self.value(key)["status"]).terminal
        known = {*self.value(keys.LIVING_BATCHES, {}), *self.value(keys.ENDED_BATCHES, {})}
        return kind == "batches" and {f"{name}:{own_id}" for own_id in self.value(key)} <= known


@lru_cache(maxsize=10_000)
def _parts(key: str) -> tuple[str, str, str] | None:
    """Shard, kind and name; None for a key of no shard."""
    match = _KEY.match(key)
    return (match["shard"], match["kind"], match["name"] or "") if match else None


def take(redis: Redis) -> Snapshot:
    """Read everything, in three round trips."""
    listed = sorted(redis.scan_iter(count=10_000))
    # A key that expired since it was listed has no type any more.
    typed = zip(listed, _all(redis, [("TYPE", name) for name in listed]), strict=True)
    living = {name: kind for name, kind in typed if kind != b"none"}
    names, kinds = list(living), list(living.values())
    readers = [_READERS[kind.decode()] for kind in kinds]
    values = _all(redis, [(reader[0], name, *reader[1:]) for name, reader in zip(names, readers, strict=True)])
    # After the values: one that ended before its value was read has no life left now.
    lives = _all(redis, [("PTTL", name) for name in names])
    rows = zip(names, kinds, lives, values, strict=True)
    # A key that ended between two reads is no longer there.
    found = {name.decode(): Entry(life >= 0, _decode(kind, value)) for name, kind, life, value in rows if life != -2}
    return Snapshot(found)


def _all(redis: Redis, commands: list[tuple[Any, ...]]) -> list[Any]:
    pipe = redis.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
    return pipe.execute()


def _decode(kind: bytes, value: Any) -> Any:
    match kind:
        case b"hash":
            return {name.decode(): item.decode() for name, item in value.items()}
        case b"zset":
            pairs = zip(value[::2], value[1::2], strict=True) if value and isinstance(value[0], bytes) else value
            return {member.decode(): float(score) for member, score in pairs}
        case b"stream":
            return [(entry.decode(), {k.decode(): v.decode() for k, v in fields.items()}) for entry, fields in value]
        case _:
            return value
