"""The owner of one batch: keeps its lease, writes what has changed, and hears of a cancel or of a loss."""

import asyncio
import math
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace

from redis.asyncio import Redis

from producer.batch.service.reading import put_away
from protocol import batch_reads, functions
from protocol.batches import BatchChange, BatchCounts, BatchName, BatchRecord, BatchStatus, BatchUsage
from protocol.call import patiently, run
from protocol.errors import FleetError, Unreadable
from protocol.functions import BatchLease

RENEWALS = 4
"""So often a lease is renewed before it would end."""
HANDOVER_S = 3.0
"""Redis may take so long to hear that a batch is free; if it does not, the lease ends by itself."""


class Lost(Exception):
    """Another owns the batch by now, or it was deleted."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How batches are owned and kept."""

    lease_s: float = 5.0
    """A batch whose owner is silent for so long goes to another."""
    keep_s: float = 30 * 86_400.0
    """How long ended batches are kept, with what they read and wrote."""
    notify: bool = False
    """Whether there is a webhook to tell of their ends."""


class Owner:
    """Owns a batch from `take` until it has ended, is released, or is lost."""

    def __init__(self, redis: Redis, record: BatchRecord, lease: BatchLease, terms: Terms) -> None:
        """Use `take`."""
        self.record = record
        self.status = record.status
        self.cancelled = asyncio.Event()
        """Set once the batch is to be cancelled."""
        self.lost = asyncio.Event()
        self._redis = redis
        self._lease = lease
        self._terms = terms
        self._news = asyncio.Event()
        self._next = BatchChange()
        self._notice(record.status)

    @classmethod
    async def take(cls, redis: Redis, name: BatchName, terms: Terms) -> "Owner | None":
        """Become the owner; None when another is, the batch has ended, or is none: that is put away.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        lease = BatchLease(name, secrets.token_hex(16), round(terms.lease_s * 1000))
        try:
            if not await run(redis, functions.batch_take(name, lease.token, lease.lease_ms)):
                return None
            record = await run(redis, batch_reads.batch_record(name))
        except Unreadable as error:
            await put_away(redis, name, error)
            return None
        return cls(redis, record, lease, terms) if record else None

    @property
    def name(self) -> BatchName:
        """The batch's."""
        return self.record.name

    async def keep(self) -> None:
        """Renew the lease until cancelled or lost; what was told meanwhile is written along."""
        while not self.lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._terms.lease_s / RENEWALS):
                    await self._news.wait()
            self._news.clear()
            # Redis is away for all: nobody else can take the batch either. Whatever else it says, it may take back.
            with suppress(FleetError, Lost):
                await self._write(self._next)

    def tell(self, counts: BatchCounts, usage: BatchUsage, model: str) -> None:
        """How many rows are done, their tokens, and what they run on; written with the next renewal.

        The first time it also says that the run has begun.
        """
        begun = BatchStatus.IN_PROGRESS if self.status is BatchStatus.VALIDATING else None
        self._next = replace(self._next, status=begun, counts=counts, usage=usage, model=model or None)
        if begun:
            self._news.set()

    async def write(self, change: BatchChange) -> BatchStatus:
        """Write a change, however long Redis is away; the state now, which is another one after a cancel.

        Raises:
            Lost: nothing was written.
        """
        self._next = BatchChange()
        return await patiently(lambda: self._write(change), math.inf)

    async def release(self, pause_s: float = 0.0) -> None:
        """Hand the batch over; with a pause before anybody is told of it. Redis may be away."""
        with suppress(FleetError, TimeoutError):
            async with asyncio.timeout(HANDOVER_S):
                await run(self._redis, functions.batch_release(self._lease, round(pause_s * 1000)))

    async def _write(self, change: BatchChange) -> BatchStatus:
        notify = self._terms.notify and self.record.spec.notify
        call = functions.batch_write(self._lease, change, round(self._terms.keep_s * 1000), notify=notify)
        status = await run(self._redis, call)
        if status is None:
            self.lost.set()
            raise Lost
        self._notice(status)
        return status

    def _notice(self, status: BatchStatus) -> None:
        self.status = status
        if status is BatchStatus.CANCELLING:
            self.cancelled.set()
