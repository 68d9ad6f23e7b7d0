"""What has to be done for batches now and then: find those that nobody runs, delete what was kept long enough."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from redis.asyncio import Redis

from producer.batch.service.inputs import check_unused, inputs_of
from producer.batch.service.reading import names_in, put_away
from producer.batch.store import FileStore, StoredFile
from protocol import batch_reads, functions, log, reads
from protocol.batches import BatchName, BatchStatus
from protocol.call import run, run_all, value_of
from protocol.errors import BatchActive, UnknownFile, Unreadable

ORPHAN_S = 7 * 86_400.0
"""An output that no batch names goes so long after its batch would have."""
MOST_LIVING = 1_000
"""So many are looked at, to count them."""
_log = log.get_logger("batch-runner")


@dataclass(frozen=True, slots=True)
class Due:
    """What waits for a runner."""

    idle: list[BatchName]
    """Nobody owns them."""
    untold: list[BatchName]
    """Their ends are still to be told to the webhook."""


async def due(redis: Redis) -> Due:
    """A look at what waits, at most 100 of each.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    now_ms = await run(redis, reads.store_time_ms())
    idle = [await names_in(redis, call) for call in (batch_reads.idle_batches(now_ms), batch_reads.endless_batches())]
    return Due([*chain(*idle)], await names_in(redis, batch_reads.untold_batches(now_ms)))


async def living(redis: Redis) -> list[BatchStatus]:
    """The states of the batches that have not ended, of the first `MOST_LIVING`; without those that can't be read.

    Raises:
        StoreUnavailable: Redis does not answer.
        NotAllowed: this Redis user may not look.
    """
    names = await names_in(redis, batch_reads.living_batches(MOST_LIVING))
    found = await run_all(redis, [batch_reads.batch_status(name) for name in names])
    readable = [status for status in found if not isinstance(status, Unreadable)]
    return [status for status in map(value_of, readable) if status]


async def clean(redis: Redis, store: FileStore, keep_s: float, now_ms: int | None = None) -> int:
    """Delete what was kept for `keep_s` seconds, and what crashes have left; how many batches and files.

    Args:
        redis: where the fleet is.
        store: the files.
        keep_s: how long ended batches are kept, with their files, and files that no batch has used.
        now_ms: the time, in ms since 1970; Redis's by default.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    now_ms = await run(redis, reads.store_time_ms()) if now_ms is None else now_ms
    outdated = await names_in(redis, batch_reads.outdated_batches(now_ms))
    for name in outdated:
        await _drop(redis, store, name)
    count = await _drop_files(redis, store, now_ms / 1000 - keep_s)
    for name in await asyncio.to_thread(lambda: list(store.workplaces())):
        with suppress(Unreadable):  # The folder goes once the record has gone.
            record = await run(redis, batch_reads.batch_record(name))
            if record is None or record.status.terminal:
                await asyncio.to_thread(store.workplace(name).clear)
    if count := count + len(outdated) + await asyncio.to_thread(store.sweep):
        _log.info("files_deleted", count=count)
    return count


async def _drop(redis: Redis, store: FileStore, name: BatchName) -> None:
    """The files first: a crash between leaves the batch to the next clean-up."""
    try:
        record = await run(redis, batch_reads.batch_record(name))
    except Unreadable as error:
        await put_away(redis, name, error)
        return
    for file_id in (record.output_file_id, record.error_file_id) if record else ():
        if file_id:
            await asyncio.to_thread(_forget, store, name.tenant, file_id)
    await run(redis, functions.batch_drop(name))


async def _drop_files(redis: Redis, store: FileStore, before_s: float) -> int:
    """Files that are older than that and that no batch names any more: an ended one is there as long as it is kept."""
    old = await asyncio.to_thread(_old_files, store, before_s)
    if not old:
        return 0
    names = [await names_in(redis, call) for call in (batch_reads.living_batches(), batch_reads.ended_batches())]
    unused = old - await inputs_of(redis, list(chain(*names)))
    for tenant, file_id in unused:
        with suppress(BatchActive):  # A batch may have begun with it since.
            await check_unused(redis, tenant, file_id)
            await asyncio.to_thread(_forget, store, tenant, file_id)
    return len(unused)


def _old_files(store: FileStore, before_s: float) -> set[tuple[str, str]]:
    return {
        (tenant, file.id)
        for tenant in store.tenants()
        for file in store.list(tenant)
        if file.created_at < before_s - _grace_s(file)
    }


def _grace_s(file: StoredFile) -> float:
    """An output goes with its batch."""
    return ORPHAN_S if file.purpose == "batch_output" else 0.0


def _forget(store: FileStore, tenant: str, file_id: str) -> None:
    try:
        store.delete(tenant, file_id)
    except UnknownFile:
        _log.debug("file_gone", file=file_id)
