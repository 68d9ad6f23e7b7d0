"""The course of one run: rows are sent and collected until all have ended, or until something ends the batch."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import Any, Self, cast

from producer.batch import ends, strays
from producer.batch.collect import Collector
from producer.batch.desk import Desk
from producer.batch.feed import Feeder, Terms
from producer.batch.fetch import RowReader
from producer.batch.ledger import Ledger
from producer.batch.options import BatchOptions, check_priority
from producer.batch.outlets import Outlets
from producer.batch.output import LineFile
from producer.batch.progress import Progress, Teller
from producer.batch.publish import publish
from producer.batch.results import Results
from producer.batch.resume import RUNNING, TIDYING, recount, repair
from producer.batch.rows import row_id
from producer.batch.tally import BatchEnd, BatchSummary, FinishedRow
from producer.batch.threads import in_thread
from producer.batch.tidy import tidy
from producer.batch.window import Window
from producer.fleet import Fleet
from producer.routing import shard_of
from protocol.cancellation import afterwards
from protocol.errors import UnknownModel
from protocol.handle import Handle, Shard
from protocol.messages import Endpoint, ModelRecord

TELL_S = 1.0


class Course:
    """One run of a batch whose rows are planned; `open` it, then `run` it once."""

    def __init__(
        self, fleet: Fleet, outlets: Outlets, options: BatchOptions, book: Ledger, record: ModelRecord, *, resumed: bool
    ) -> None:
        """`record` says where the batch's model is served."""
        self._fleet, self._outlets, self._options, self._book, self._record = fleet, outlets, options, book, record
        self._resumed = resumed
        self._facts = book.facts()
        self._loop = asyncio.get_running_loop()
        self.summary = BatchSummary(self._facts.batch_id, model=self._facts.model)
        self.summary.rows_in, self.summary.rows_bad = self._facts.rows, self._facts.bad
        self.summary.rows_refused = self._facts.refused
        self._results = Results(fleet.redis, fleet.tenant, self._facts.batch_id)
        shards = [Shard(record.pool, number) for number in range(record.shards)] if resumed else []
        self._window = Window(options.window, shards)
        self._stopped: asyncio.Future[BatchEnd] = self._loop.create_future()
        self._spared = self._facts.bad
        self._over = False
        self._collector: Collector | None = None

    @classmethod
    async def open(cls, fleet: Fleet, outlets: Outlets, options: BatchOptions, book: Ledger, *, resumed: bool) -> Self:
        """Look up where the batch's model is served.

        Raises:
            UnknownModel: nowhere.
        """
        model = book.facts().model
        record = (await fleet.models()).get(model)
        if record is None and model:
            raise UnknownModel("no worker ever registered the batch's model", "Start a worker for it, then resume.")
        return cls(fleet, outlets, options, book, record or ModelRecord(pool="none"), resumed=resumed)

    async def run(
        self,
        cancel: asyncio.Event | None,
        on_progress: Callable[[Progress], None],
        on_row: Callable[[FinishedRow], None],
    ) -> BatchSummary:
        """Until the batch has ended; `cancel` is one way to end it. Raises as `run_batch` does."""
        with ExitStack() as stack:
            if self._facts.state == TIDYING:
                await in_thread(lambda: tidy(self._outlets, self._book, self._facts.batch_id))
            # Before the files are opened, which makes those that are not there.
            self._over = self._facts.state == BatchEnd.COMPLETED and self._outlets.whole(self._book)
            self._output = self._outlets.opened(stack, anew=not self._resumed)
            self._desk = Desk(self._output, self._book, self.summary, self._tell, dedup=self._options.dedup)
            try:
                await in_thread(self._go_on)
            except asyncio.CancelledError:
                await self._give_up()
                raise
            ends_at = self._ends_at()
            self._teller = Teller(self.summary, self._window, ends_at, self._loop.time, on_progress, on_row)
            stack.callback(self._teller.end)
            self._tell(())
            if self._done:
                self._outlets.remove_work()
                return self.summary
            reader = RowReader(self._facts.readable)
            stack.callback(reader.close)
            feeder = Feeder(self._fleet, self._terms(ends_at), reader, self._book, self._window, self._desk)
            collecting = (self._results, self._book, self._window, self._desk, feeder.send, ends_at)
            self._collector = Collector(*collecting, lambda: self._stop(BatchEnd.EXPIRED))
            end = await self._guarded(self._rows(feeder, self._collector), cancel, ends_at)
            await self._finish(end)
        return self.summary

    def _go_on(self) -> None:
        """Take over what earlier runs have written."""
        if self._facts.state == BatchEnd.FAILED and not self._options.keep:
            # Who goes on all the same allows as many failures once more. A runner that takes over only brings it to
            # its end: the last one had no time left to say that it failed.
            self._spared = self._book.counts().failed
        if self._resumed:
            if not self._over:
                for file, lines in self._output.files.items():
                    if isinstance(lines, LineFile):
                        repair(self._book, file, lines, self._facts)
            recount(self.summary, self._book)
        if not self._done:
            self._facts = replace(self._facts, state=RUNNING, ended_ms=None)
            self._book.set_facts(self._facts)

    async def _guarded(
        self, rows: Coroutine[None, None, None], cancel: asyncio.Event | None, ends_at: float | None
    ) -> BatchEnd:
        """How the rows ended. Whatever breaks them off withdraws what is under way, unless it is to go on."""
        try:
            return await self._until_stopped(rows, cancel, ends_at)
        except asyncio.CancelledError:
            await self._give_up()
            raise
        except BaseException:
            # What could not be written then can't be now.
            await self._withdraw(None)
            raise

    async def _give_up(self) -> None:
        """The task was cancelled: from when the files are there, each row gets its line."""
        if not (self._options.keep or self._done):
            await afterwards(self._finish(BatchEnd.CANCELLED))

    @property
    def _done(self) -> bool:
        return self._over and not self.summary.rows_unfinished

    async def _rows(self, feeder: Feeder, collector: Collector) -> None:
        refusals = strays.refuse_bad(self._book, self._desk)
        for _ in chain(refusals, strays.answer_stranded(self._book, self._output, self._desk)):
            await asyncio.sleep(0)
        if self._resumed:
            await collector.catch_up()
        await both(feeder.feed(), collector.collect())

    async def _until_stopped(
        self, rows: Coroutine[None, None, None], cancel: asyncio.Event | None, ends_at: float | None
    ) -> BatchEnd:
        if cancel is not None and cancel.is_set():
            rows.close()
            return BatchEnd.CANCELLED
        tasks: list[asyncio.Future[Any]] = [asyncio.create_task(rows), asyncio.create_task(self._keep_telling())]
        if cancel is not None:
            tasks.append(asyncio.create_task(self._stop_once(cancel)))
        if ends_at is not None:
            timer = self._loop.call_at(ends_at, self._stop, BatchEnd.EXPIRED)
        try:
            await asyncio.wait([tasks[0], self._stopped], return_when=asyncio.FIRST_COMPLETED)
            if self._stopped.done():
                return self._stopped.result()
            tasks[0].result()
        finally:
            if ends_at is not None:
                timer.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return BatchEnd.COMPLETED

    async def _keep_telling(self) -> None:
        """Also while no row ends: who waits sees that it stands still, and that the deadline looks missed."""
        while True:
            await asyncio.sleep(TELL_S)
            self._teller.tell(())

    async def _stop_once(self, cancel: asyncio.Event) -> None:
        await cancel.wait()
        self._stop(BatchEnd.CANCELLED)

    def _stop(self, end: BatchEnd) -> None:
        if not self._stopped.done():
            self._stopped.set_result(end)

    def _tell(self, finished: Sequence[FinishedRow]) -> None:
        self._teller.tell(finished)
        if self._too_many_failed:
            self._stop(BatchEnd.FAILED)

    @property
    def _too_many_failed(self) -> bool:
        most = self._options.max_errors
        return most is not None and self.summary.rows_failed - self._spared > most

    async def _withdraw(self, collector: Collector | None) -> None:
        own_ids = list(self._sent())
        tenant = self._fleet.tenant
        handles = [Handle(shard_of(self._record, tenant, own_id), tenant, own_id) for own_id in own_ids]
        await ends.withdraw(self._results, self._window, handles, collector)

    def _sent(self) -> dict[str, None]:
        """The jobs that may live: ours, and those of an earlier run that this one has not found yet.

        Rows are sent in the ledger's order, so what a whole window had under way are the first that have no line.
        """
        batch_id, most = self._facts.batch_id, self._options.window
        earlier = self._book.todo(0, most) if self._resumed else ()
        ids = (row_id(batch_id, row.number, row.generation) for row in earlier)
        return dict.fromkeys([*self._window.pending, *ids])

    async def _finish(self, end: BatchEnd) -> None:
        """Give each row its line, and each file its form."""
        if end is not BatchEnd.COMPLETED:
            await self._withdraw(self._collector)
        # Also of a completed batch: the last row may have been refused by a send that was broken off among the twins.
        await self._desk.answer_twins()
        if end is not BatchEnd.COMPLETED and not self.summary.rows_unfinished:
            end = BatchEnd.FAILED if self._too_many_failed else BatchEnd.COMPLETED
        self.summary.state = end
        book, facts, ordered = self._book, self._facts, self._outlets.ordered
        if end is not BatchEnd.COMPLETED:
            # First: what stands behind the last line that the ledger knows is cut off then when the batch is resumed.
            book.set_facts(ends.ended(facts, end, self.summary.rows_refused))
            if not ordered:
                await ends.close(book, self._output, facts.batch_id, end)
        closing = ends.closing(book, facts.batch_id, end) if ordered and end is not BatchEnd.COMPLETED else ()
        await in_thread(lambda: publish(self._outlets, self._output, book, closing))
        if end is BatchEnd.COMPLETED:
            self._output.sync()
            book.set_facts(ends.ended(facts, end, self.summary.rows_refused))
            self._outlets.remove_work()

    def _terms(self, ends_at: float | None) -> Terms:
        return Terms(
            batch_id=self._facts.batch_id,
            model=self._facts.model,
            endpoint=cast("Endpoint", self._facts.endpoint),
            priority=check_priority(self._options.priority),
            ends_at=ends_at,
            durable=self._options.durable,
            stream=self._options.stream,
            resumed=self._resumed,
        )

    def _ends_at(self) -> float | None:
        deadline_ms = self._facts.deadline_ms
        return None if deadline_ms is None else self._loop.time() + deadline_ms / 1000 - time.time()


async def both(feeding: Coroutine[None, None, None], collecting: Coroutine[None, None, None]) -> None:
    """Until both have ended, or one has failed."""
    tasks = [asyncio.create_task(feeding), asyncio.create_task(collecting)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
