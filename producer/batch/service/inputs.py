"""Which files batches need: those that they read, and those that they write."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from redis.asyncio import Redis

from producer.batch.store import OUTPUTS, output_id
from protocol import batch_reads
from protocol.batches import BatchName
from protocol.call import run, run_all, value_of
from protocol.errors import BatchActive, Unreadable, WrongType


async def inputs_of(redis: Redis, names: Sequence[BatchName]) -> set[tuple[str, str]]:
    """Tenant and id of the files that these batches read; without batches that can't be read.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    found = await run_all(redis, [batch_reads.batch_input(name) for name in names])
    files = zip(names, (None if isinstance(one, Unreadable) else value_of(one) for one in found), strict=True)
    return {(name.tenant, file_id) for name, file_id in files if file_id}


def outputs_of(names: Iterable[BatchName]) -> set[tuple[str, str]]:
    """Tenant and id of the files that these batches write, whether they are there yet or not."""
    return {(name.tenant, output_id(name, part)) for name in names for part in OUTPUTS}


async def check_unused(redis: Redis, tenant: str, file_id: str) -> None:
    """Let nobody delete what a batch needs that has not ended.

    Raises:
        BatchActive: one does.
        StoreUnavailable: Redis does not answer.
    """
    living: list[BatchName] = []
    # What a hand wrote there, a runner sets apart.
    with suppress(WrongType):
        living += [name for name in await run(redis, batch_reads.living_batches()) if name.tenant == tenant]
    if (tenant, file_id) in outputs_of(living) | await inputs_of(redis, living):
        raise BatchActive("a batch that has not ended uses this file", "Wait for its end, or cancel the batch.")
