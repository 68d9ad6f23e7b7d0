"""Where a model is served, and which shard of its pool takes a job."""

import zlib
from collections.abc import Iterable

from redis.asyncio import Redis

from protocol import reads
from protocol.call import patiently, run
from protocol.clock import Clock, SystemClock
from protocol.errors import UnknownModel
from protocol.handle import Shard
from protocol.messages import ModelRecord

FRESH_S = 5.0


class Routes:
    """A copy of the table of models, read again when a model is missing or the copy is old."""

    def __init__(self, redis: Redis, clock: Clock | None = None) -> None:
        """Begin empty; nothing is read yet."""
        self._redis = redis
        self._clock = clock or SystemClock()
        self._table: dict[str, ModelRecord] = {}
        self._read_at = float("-inf")

    async def prepare(self, models: Iterable[str], patience_s: float) -> None:
        """Have a table that knows these models, where anybody does: one read at most.

        Raises:
            StoreUnavailable: Redis stayed away for `patience_s` seconds.
        """
        now = self._clock.monotonic()
        if now - self._read_at > FRESH_S or not self._table.keys() >= set(models):
            self._table = await patiently(lambda: run(self._redis, reads.models()), patience_s)
            self._read_at = now

    def find(self, model: str) -> ModelRecord:
        """The record of a model.

        Raises:
            UnknownModel: no worker ever registered it.
        """
        try:
            return self._table[model]
        except KeyError:
            raise UnknownModel("no worker ever registered this model", _known(self._table)) from None


def _known(models: Iterable[str]) -> str:
    names = ", ".join(sorted(models)[:10])
    return f"Known models: {names}." if names else "Start a worker for it: `tokenfleet worker --model NAME`."


def shard_of(record: ModelRecord, tenant: str, own_id: str) -> Shard:
    """The shard that takes a job: always the same one for the same tenant and id."""
    return Shard(record.pool, zlib.crc32(f"{tenant}:{own_id}".encode()) % record.shards)
