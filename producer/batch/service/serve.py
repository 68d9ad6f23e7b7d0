"""Runs one batch of the service: as its owner, from wherever the last owner has left it, to its end."""

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from producer.batch.progress import Progress
from producer.batch.run import ignore, run_batch
from producer.batch.service.owner import Lost, Owner, Terms
from producer.batch.store import FileStore
from producer.batch.tally import BatchEnd, BatchSummary, FinishedRow
from producer.batch.workplace import Occupied, Workplace
from producer.fleet import Fleet
from protocol import log, reads
from protocol.batches import BatchChange, BatchCounts, BatchError, BatchName, BatchStatus, BatchUsage
from protocol.call import run
from protocol.cancellation import afterwards
from protocol.errors import (
    BatchInvalid,
    FleetError,
    LibraryMissing,
    NotAllowed,
    OutputFailed,
    QueueFull,
    StoreFull,
    StoreUnavailable,
)

T = TypeVar("T")
MOST_ERRORS = 1_000
"""So many of an input's errors stand in the record; `tokenfleet batch validate` tells all."""
TOO_MANY_FAILED = BatchError(code="batch_failed", message="more rows failed than max_errors allows", param="max_errors")
LEAST_S = 0.001
OVERDUE_MS = 3_600_000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
_LATER = (LibraryMissing, NotAllowed, OutputFailed, QueueFull, StoreFull, StoreUnavailable)
"""Nothing is wrong with the batch: another attempt may go well."""
_log = log.get_logger("batch-runner")


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told of a batch as it runs."""

    on_take: Callable[[], None] = lambda: None
    on_progress: Callable[[Progress], None] = ignore
    on_row: Callable[[FinishedRow], None] = ignore
    """Of each row that this run ends."""


NOBODY = Watch()


async def serve(
    fleet: Fleet, store: FileStore, name: BatchName, terms: Terms, watch: Watch = NOBODY
) -> BatchStatus | None:
    """Take a batch and bring it to its end; returns at once when another owns it, or it has ended.

    Returns the batch's end; None when it has not come to it here.

    When it can't go on for now, as on a full disk, the batch is released with a pause.

    Raises:
        StoreUnavailable: Redis did not answer at the beginning.
        CancelledError: this was cancelled: the batch was handed over, its jobs go on, and another owner collects them.
    """
    owner = await Owner.take(fleet.redis, name, terms)
    if owner is None:
        return None
    watch.on_take()
    logger = _log.bind(batch=name.id, tenant=name.tenant)
    logger.info("batch_taken", status=str(owner.status), takes=owner.record.takes)
    keeping, end = asyncio.create_task(owner.keep()), None
    try:
        await asyncio.to_thread(store.check)
        place = store.workplace(name)
        with place.held():
            await _Service(fleet, store, owner, place, watch).serve()
        await asyncio.to_thread(place.clear)
        logger.info("batch_ended", status=str(owner.status))
        end = owner.status
    except Lost:
        logger.warning("batch_lost")
    except asyncio.CancelledError:
        await afterwards(owner.release())
        logger.info("batch_handed_over")
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, other batches go on, and this one is tried again
        pause_s = min(FIRST_PAUSE_S * 2 ** min(owner.record.takes, 10), LONGEST_PAUSE_S)
        pause_s = FIRST_PAUSE_S if isinstance(error, Occupied) else pause_s
        code = error.code if isinstance(error, FleetError) else type(error).__name__
        logger.warning("batch_put_off", code=code, at=_place(error), pause_s=pause_s)
        await owner.release(pause_s)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    return end


@dataclass(frozen=True, slots=True)
class _Service:
    fleet: Fleet
    store: FileStore
    owner: Owner
    place: Workplace
    watch: Watch

    async def serve(self) -> None:
        if self.owner.status is BatchStatus.FINALIZING:
            await self._end(BatchStatus.COMPLETED, BatchChange())
            return
        try:
            summary = await self._unless_lost(self._run())
        except (Lost, Occupied):
            raise
        except Exception as error:
            later = isinstance(error, _LATER) or not isinstance(error, FleetError)
            if later and not await self._overdue():
                raise
            await self._end(BatchStatus.EXPIRED if later else BatchStatus.FAILED, BatchChange(errors=_errors(error)))
            return
        errors = (TOO_MANY_FAILED,) if summary.state is BatchEnd.FAILED else ()
        figures = BatchChange(
            counts=_counts(summary), usage=_usage(summary), model=summary.model or None, errors=errors
        )
        await self._end(BatchStatus(summary.state), figures)

    async def _overdue(self) -> bool:
        """Whether it has been tried for long enough beyond its expiry: a batch ends, whatever is wrong."""
        now_ms = await run(self.fleet.redis, reads.store_time_ms())
        return now_ms > self.owner.record.expires_ms + OVERDUE_MS

    async def _run(self) -> BatchSummary:
        spec, owner = self.owner.record.spec, self.owner
        source = await asyncio.to_thread(self.store.path, owner.name.tenant, spec.input_file_id)
        now_ms = await run(self.fleet.redis, reads.store_time_ms())
        return await run_batch(
            self.fleet,
            source,
            self.place.output,
            errors=self.place.errors,
            batch_id=owner.name.id,
            model=spec.model,
            models=spec.models,
            endpoint=spec.endpoint if spec.endpoint_given else None,
            priority=spec.priority,
            deadline=max((owner.record.expires_ms - now_ms) / 1000, LEAST_S),
            on_invalid=spec.on_invalid,
            dedup=spec.dedup,
            order=spec.order,
            max_errors=spec.max_errors,
            resume=True,
            keep=True,
            cancel=owner.cancelled,
            on_progress=self._tell,
            on_row=self.watch.on_row,
        )

    def _tell(self, news: Progress) -> None:
        self.owner.tell(_counts(news), _usage(news), news.model)
        self.watch.on_progress(news)

    async def _unless_lost(self, work: Coroutine[None, None, T]) -> T:
        """Break the work off as soon as the batch is another's; its jobs go on for that one."""
        working = asyncio.ensure_future(work)
        losing = asyncio.ensure_future(self.owner.lost.wait())
        try:
            await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Lost
            return working.result()
        finally:
            for task in (working, losing):
                task.cancel()
            await asyncio.gather(working, losing, return_exceptions=True)

    async def _end(self, wanted: BatchStatus, change: BatchChange) -> None:
        """Through the states between; a cancel that came meanwhile wins, and keeps the rows that are done."""
        if self.owner.status is BatchStatus.VALIDATING and wanted is BatchStatus.COMPLETED:
            await self.owner.write(BatchChange(BatchStatus.IN_PROGRESS))
        if self.owner.status is not BatchStatus.FINALIZING and wanted is BatchStatus.COMPLETED:
            await self.owner.write(replace(change, status=BatchStatus.FINALIZING))
        files: dict[str, Any] = {
            "output_file_id": await self._adopted("output", self.place.output),
            "error_file_id": await self._adopted("errors", self.place.errors),
        }
        cancelled = self.owner.status is BatchStatus.CANCELLING
        end = replace(change, status=BatchStatus.CANCELLED if cancelled else wanted, **files)
        if await self.owner.write(end) is BatchStatus.CANCELLING:
            await self.owner.write(replace(end, status=BatchStatus.CANCELLED))

    async def _adopted(self, part: str, path: Path) -> str | None:
        return await asyncio.to_thread(self.store.adopt, self.owner.name, part, path)


def _place(error: Exception) -> str:
    """Where it was raised. Its text may quote a request; this does not."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _counts(figures: Progress | BatchSummary) -> BatchCounts:
    """Rows that never ran because the batch came to its end are no failures, though each has its error line."""
    total = figures.rows_total if isinstance(figures, Progress) else figures.rows_in
    return BatchCounts(total=total, completed=figures.rows_out - figures.rows_failed, failed=figures.rows_failed)


def _usage(figures: Progress | BatchSummary) -> BatchUsage:
    cached = figures.tokens_cached
    return BatchUsage(input_tokens=figures.tokens_in, cached_tokens=cached, output_tokens=figures.tokens_out)


def _errors(error: Exception) -> tuple[BatchError, ...]:
    if isinstance(error, BatchInvalid):
        first = error.problems[:MOST_ERRORS]
        return tuple(BatchError(code=p.code, line=p.line, message=p.message, param=p.param) for p in first)
    if isinstance(error, FleetError):
        return (BatchError(code=error.code, message=str(error)),)
    return (BatchError(code="internal_error", message="the runner failed; its log says where"),)
