"""Who is asking, and what it may: API keys looked up in Redis."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from redis.asyncio import Redis

from producer.scope import ALL, Scope
from protocol import api_keys
from protocol.api_keys import NamedKey
from protocol.call import patiently, run
from protocol.clock import Clock, SystemClock
from protocol.limits import NO_LIMITS, Bucket, Limits
from protocol.states import Priority

FRESH_S = 2.0
"""How long a key that was found is taken for good: a revocation is heeded after so long at most."""
MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Grant:
    """What the bearer of a key may."""

    tenant: str
    key_id: str
    """Empty where everybody is let in: then nobody counts."""
    priorities: tuple[Priority, ...] = tuple(Priority)
    models: tuple[str, ...] = ()
    """Empty: all."""
    limits: Limits = NO_LIMITS
    operator: bool = False
    """May see all tenants' jobs and batches on the live page, though not what they ask and answer."""

    @property
    def sight(self) -> Scope:
        """Whose jobs and batches the live page shows."""
        return ALL if self.operator else Scope(self.tenant)

    @property
    def bucket(self) -> Bucket | None:
        """What its jobs count against, for `Fleet.submit`; None without a key."""
        return Bucket(self.key_id, self.limits) if self.key_id else None

    def may_use(self, model: str) -> bool:
        """Whether it may ask for this model."""
        return not self.models or model in self.models


class KeyRing(Protocol):
    """Knows the keys."""

    async def find(self, key: str) -> Grant | None:
        """What the key may; None for one that is unknown or revoked."""
        ...


class StoredKeys:
    """The keys in Redis, any number of gateways beside each other.

    What was found is kept for `FRESH_S` seconds, by its hash. What was not found is asked for each time: a new key is
    good at once, and whoever tries many can't drive out those that are good.
    """

    def __init__(self, redis: Redis, patience_s: float, clock: Clock | None = None) -> None:
        """Ask `redis`; wait `patience_s` seconds for it while it is away."""
        self._redis, self._patience_s = redis, patience_s
        self._clock = clock or SystemClock()
        self._kept: OrderedDict[str, tuple[float, Grant]] = OrderedDict()

    async def find(self, key: str) -> Grant | None:
        """What the key may; None for one that is unknown or revoked.

        Raises:
            StoreUnavailable: Redis stayed away.
        """
        digest, now = api_keys.digest_of(key), self._clock.monotonic()
        kept = self._kept.get(digest)
        if kept and now - kept[0] < FRESH_S:
            return kept[1]
        record = await patiently(lambda: run(self._redis, api_keys.find(digest)), self._patience_s)
        self._kept.pop(digest, None)
        if record is None or record.revoked_ms:
            return None
        named = NamedKey(digest, record)
        grant = Grant(record.tenant, named.id, record.priorities, record.models, record.limits, record.operator)
        self._kept[digest] = (now, grant)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return grant

    async def any_created(self) -> bool:
        """Whether a key was ever created; where none was, only a gateway that is told so lets everybody in.

        Raises:
            StoreUnavailable: Redis stayed away.
        """
        return await patiently(lambda: run(self._redis, api_keys.count()), self._patience_s) > 0


class UntilFirstKey:
    """Lets everybody in until a key is created, here or elsewhere; from then on those who have one."""

    def __init__(self, stored: StoredKeys, clock: Clock | None = None) -> None:
        """Look every `FRESH_S` seconds whether there is a key."""
        self._stored, self._everybody = stored, Everybody()
        self._clock = clock or SystemClock()
        self._looked_s = -FRESH_S
        self._guarded = False

    async def find(self, key: str) -> Grant | None:
        """What the key may, or whoever has none.

        Raises:
            StoreUnavailable: Redis stayed away.
        """
        now = self._clock.monotonic()
        if not self._guarded and now - self._looked_s >= FRESH_S:
            self._guarded, self._looked_s = await self._stored.any_created(), now
        return await (self._stored if self._guarded else self._everybody).find(key)


class Everybody:
    """Lets everybody in, as one tenant and without limits: for a gateway that only its owner can reach."""

    def __init__(self, tenant: str = "default") -> None:
        """All act for `tenant`."""
        self._grant = Grant(tenant, "", operator=True)

    async def find(self, key: str) -> Grant | None:
        """The same for each key, and for none."""
        del key
        return self._grant
