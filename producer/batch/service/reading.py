"""Lists and records of batches as they are read: what a hand wrote among them stops nobody."""

from collections.abc import Sequence

from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from protocol import batch_reads, keys, log
from protocol.batches import BatchName, BatchRecord
from protocol.call import Call, run, run_all, value_of
from protocol.errors import Unreadable, WrongType

_log = log.get_logger("batch-runner")


async def names_in(redis: Redis, listed: Call[list[BatchName]], logger: FilteringBoundLogger = _log) -> list[BatchName]:
    """What a list names. Members that can name no batch are taken out of it: they would stand before those that do.

    Where another type stands in the list's place it is empty; the next move that writes there sets that apart.

    Raises:
        StoreUnavailable: Redis does not answer.
        NotAllowed: this Redis user may not look, or not take out.
    """
    key = listed.command[1]
    try:
        while True:
            names, strays = await run(redis, batch_reads.with_strays(listed))
            if not strays:
                return names
            logger.warning("batch_unreadable", key=key, code="invalid_id", count=len(strays))
            await run(redis, batch_reads.strike(listed, strays))
    except WrongType as error:
        logger.warning("batch_unreadable", key=key, code=error.code, count=1)
        return []


async def records_of(
    redis: Redis, names: Sequence[BatchName], logger: FilteringBoundLogger = _log
) -> list[BatchRecord]:
    """Those that can be read; one that is deleted meanwhile is left out.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    records = []
    results = await run_all(redis, [batch_reads.batch_record(name) for name in names])
    for name, found in zip(names, results, strict=True):
        if isinstance(found, Unreadable):
            _tell(name, found, logger)
        elif record := value_of(found):
            records.append(record)
    return records


async def put_away(redis: Redis, name: BatchName, error: Unreadable) -> None:
    """Strike from all lists what can't be read and that nobody owns; it ends by itself.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    _tell(name, error, _log)
    await run_all(redis, batch_reads.put_away(name))


def _tell(name: BatchName, error: Unreadable, logger: FilteringBoundLogger) -> None:
    logger.warning("batch_unreadable", key=keys.batch(name), code=error.code, count=1)
