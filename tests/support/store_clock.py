"""Turning Redis's own time: patched inside fakeredis; on a real server everything stored is made older instead."""

import importlib
import time
from typing import Any, Protocol

import pytest
from redis import Redis

_USERS_OF_TIME = (
    "fakeredis._helpers",
    "fakeredis._socket._base",
    "fakeredis.commands_mixins.server_mixin",
    "fakeredis.model._stream",
)
_TIME_SETS = (b":workers", b":due", b":deadlines")


class StoreClock(Protocol):
    """Redis's time, as a test turns it."""

    def advance(self, ms: int) -> None:
        """Let `ms` pass at once; below zero the clock jumps back."""
        ...


class FakeStoreClock:
    """Stands in for the `time` module inside fakeredis. Frozen, it moves by `advance` only."""

    def __init__(self, *, frozen: bool = False) -> None:
        self._frozen_s = 1_700_000_000.0 if frozen else None
        self._offset_s = 0.0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in _USERS_OF_TIME:
            monkeypatch.setattr(importlib.import_module(name), "time", self)

    def time(self) -> float:
        return (time.time() if self._frozen_s is None else self._frozen_s) + self._offset_s

    def advance(self, ms: int) -> None:
        self._offset_s += ms / 1000

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class AgingClock:
    """Lets time pass on a real server by making every stored time and expiry older."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def advance(self, ms: int) -> None:
        for key in list(self._redis.scan_iter(count=1000)):
            self._expire_earlier(key, ms)
            if key.endswith(_TIME_SETS):
                self._score_earlier(key, ms)
            elif key.endswith(b":clock"):
                self._field_earlier(key, "tick", ms)
            elif b":job:" in key:
                self._field_earlier(key, "deadline", ms)
            elif b":worker:" in key:
                self._field_earlier(key, "at", ms)
                self._field_earlier(key, "unheard", ms)
            elif b":tenant:" in key:
                self._field_earlier(key, "spent_at", ms)
            elif b":bucket:" in key:
                self._field_earlier(key, "at", ms)

    def _expire_earlier(self, key: bytes, ms: int) -> None:
        left = self._ask("PTTL", key)
        if left > 0:
            self._ask("PEXPIRE", key, left - ms)

    def _score_earlier(self, key: bytes, ms: int) -> None:
        found = self._ask("ZRANGE", key, 0, -1, "WITHSCORES")
        for member, score in zip(found[::2], found[1::2], strict=True):
            if float(score) > 0:
                self._ask("ZINCRBY", key, -ms, member)

    def _field_earlier(self, key: bytes, field: str, ms: int) -> None:
        if self._ask("HEXISTS", key, field):
            self._ask("HINCRBY", key, field, -ms)

    def _ask(self, *command: str | bytes | int) -> Any:
        return self._redis.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
