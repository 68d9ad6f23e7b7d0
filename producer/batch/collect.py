"""Takes the results of a batch's rows: by the notices of their ends, and by looking where notices stay away."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import compress
from typing import Any

from producer.batch import rows
from producer.batch.desk import Desk, Done
from producer.batch.ledger import Ledger
from producer.batch.records import Status, Todo
from producer.batch.results import Ended, Results
from producer.batch.tally import FinishedRow
from producer.batch.window import Window
from protocol.messages import DoneNotice, Outcome
from protocol.reads import JobTimes
from protocol.states import State

SILENCE_S = 5.0
"""After so long without a notice, look at the jobs themselves."""
MOST_SENDS = 3
LOST = "lost", "the store lost the job several times"
EXPIRED = "expired", "the job expired several times, though the batch's time was not over"
"""The codes and texts of rows that were sent so often, and have no answer."""

Resend = Callable[[Sequence[Todo]], Coroutine[Any, Any, None]]


class Collector:
    """Writes each ended row, then forgets its job."""

    def __init__(
        self,
        results: Results,
        book: Ledger,
        window: Window,
        desk: Desk,
        resend: Resend,
        ends_at: float | None,
        on_expired: Callable[[], None],
    ) -> None:
        """Collect.

        Args:
            results: the jobs in Redis.
            book: which rows still have no line.
            window: the rows that are sent.
            desk: where their lines are written.
            resend: submits rows that Redis has lost.
            ends_at: the event loop's time when the batch expires, if it does: rows that expire are left without a line.
            on_expired: told when a row's time was over, and so was the batch's.
        """
        self._results, self._book, self._window, self._desk = results, book, window, desk
        self._resend, self._ends_at, self._on_expired = resend, ends_at, on_expired
        self._batch_id = results.batch_id
        self._sends: set[asyncio.Task[None]] = set()
        """What submits rows again."""
        self._collecting = False

    async def collect(self) -> None:
        """Until the window is closed and empty."""
        self._collecting = True
        try:
            await self._collect()
        finally:
            self._collecting = False
            # What they would send has ended.
            for send in self._sends:
                send.cancel()
            await asyncio.gather(*self._sends, return_exceptions=True)

    async def _collect(self) -> None:
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        while self._window.pending or not self._window.closed:
            for send in [send for send in self._sends if send.done()]:
                self._sends.remove(send)
                send.result()
            if notices := await self._notices():
                await self._take(notices)
            elif loop.time() - heard_at >= SILENCE_S:
                await self._look()
            else:
                continue
            heard_at = loop.time()
        # The last row may have been told of more than once.
        await self.catch_up()

    async def catch_up(self) -> None:
        """Take what has ended already, and has not been taken: by a run that broke off, or in the last moment."""
        while self._window.shards and (notices := await self._results.notices(self._window.shards, wait_ms=1)):
            await self._take(notices)

    async def finish(self, ended: Sequence[Ended]) -> set[str]:
        """Write the rows of jobs that ended, then forget the jobs. What Redis has lost of them is sent again.

        First written: after a crash a line may stand there that the ledger does not know, but none is missing. Not
        forgotten while a submit of it is under way, as when an earlier run has sent it too: that would make it anew.

        A row may expire before its batch does: its job had the deadline of an earlier run. It is sent again too.

        A job may live, or have ended once more: its row was sent again after a look had seen its end, and only now the
        notice of that was read. It is neither forgotten nor sent again: its own end will be told.

        Returns:
            The ids of ended jobs without an outcome that can be read: they stay, and so must all that tells of them.
        """
        placed = {job.handle.own_id for job in ended if job.handle.own_id in self._window.pending}
        calm = {job.handle.own_id for job in ended if self._window.idle(job.handle.own_id)}
        found = list(zip(ended, await self._results.endings(ended), strict=True))
        here = [(job, times, outcome) for job, (times, outcome) in found if times and outcome]
        rest = [(job, times) for job, (times, outcome) in found if not (times and outcome)]
        blank = {job.handle.own_id for job, times in rest if times and times.finished_ms}
        # The others may just have given way to a new job, whose end will be told; else a look finds them.
        lost = blank & calm
        absent = {job.handle.own_id: job for job, _ in rest if job.handle.own_id not in blank}
        labels = await self._results.labels([(job.handle.shard, times) for job, times, _ in here])
        waits = [self._waits(job, placed) for job, *_ in here]
        absent |= {job.handle.own_id: job for (job, *_), does in zip(here, waits, strict=True) if not does}
        here = list(compress(here, waits))
        late = [outcome.state is State.EXPIRED for _, _, outcome in here]
        left = [expired or self._withdrawn(job, outcome) for (job, _, outcome), expired in zip(here, late, strict=True)]
        self._desk.write([self._done(*ending, labels) for ending, no in zip(here, left, strict=True) if not no])
        over = self._over
        expired = set() if over else {job.handle.own_id for job, _, _ in compress(here, late)}
        # Before anything else can run: a row that was written must not be taken a second time.
        for (job, _, _), no in zip(here, left, strict=True):
            if job.handle.own_id not in expired:
                self._window.remove(job.handle.own_id, job.row.number, early=not no)
        await self._desk.answer_twins()
        await self._window.sent(job.handle.own_id for job, _, _ in here)
        # Asked before their jobs go: what is sent by then may be there again when that is known.
        idle = {job.handle.own_id: job.row for job in ended if self._window.idle(job.handle.own_id)}
        gone = await self._results.forget([*(job for job, _, _ in here), *absent.values()])
        if any(late) and over:
            self._on_expired()
        lost |= gone & absent.keys()
        await self._again([row for own_id, row in idle.items() if own_id in lost], LOST)
        await self._again([row for own_id, row in idle.items() if own_id in expired & gone], EXPIRED)
        return blank

    @property
    def _over(self) -> bool:
        """Whether the batch's time is over, if it has an end."""
        return self._ends_at is not None and asyncio.get_running_loop().time() >= self._ends_at

    async def _notices(self) -> list[DoneNotice]:
        if self._window.shards:
            return await self._results.notices(self._window.shards)
        await self._window.news()
        return []

    async def _take(self, notices: Sequence[DoneNotice]) -> None:
        """Rows that have their line already need no look: their notices only go.

        Of a row's ends the last one counts: a job that was sent again goes with no other. An end may also have been
        told twice, to an earlier run and to this one.
        """
        rows_of = self._rows_of({notice.handle.own_id for notice in notices})
        last = {notice.handle.own_id: notice for notice in notices}
        ended = [
            Ended(notice.handle, notice.attempt, rows_of[own_id], notice)
            for own_id, notice in last.items()
            if own_id in rows_of
        ]
        taken = {job.notice for job in ended}
        stay = await self.finish(ended)
        others = [notice for notice in notices if notice not in taken and notice.handle.own_id not in stay]
        await self._results.forget(others)

    def _rows_of(self, own_ids: Iterable[str]) -> dict[str, Todo]:
        """Job's id → row, for the rows that have no line yet, be they sent by this run or by an earlier one."""
        found, others = {}, {}
        for own_id in own_ids:
            if own_id in self._window.pending:
                found[own_id] = self._window.pending[own_id].row
            elif own_id not in self._window.withdrawn and (place := rows.row_of(self._batch_id, own_id)):
                others[place] = own_id
        for row in self._book.rows([number for number, _ in others]) if others else ():
            own_id = others.get((row.number, row.generation), "")
            if own_id and row.status is Status.WAITING and not row.bad:
                found[own_id] = row
        return found

    async def _look(self) -> None:
        """What became of the rows that nobody told of."""
        pending = self._window.pending
        sent = [(at.row, at.handle) for own_id, at in pending.items() if at.handle and self._window.idle(own_id)]
        standings = await self._results.standings([handle for _, handle in sent])
        found = list(zip(sent, standings, strict=True))
        await self.finish([Ended(handle, at.attempt, row) for (row, handle), at in found if at and at.state.terminal])
        await self._again([row for (row, _), standing in found if standing is None], LOST)

    def _waits(self, job: Ended, placed: set[str]) -> bool:
        """Whether the row has no line yet: the feeder may have refused it while its job's end was read."""
        if (own_id := job.handle.own_id) in placed:
            return own_id in self._window.pending
        (row,) = self._book.rows([job.row.number])
        return row.status is Status.WAITING

    def _withdrawn(self, job: Ended, outcome: Outcome) -> bool:
        """Whether it was an earlier run that cancelled the job, when it was broken off: the row still waits."""
        return outcome.state is State.CANCELLED and job.handle.own_id not in self._window.pending

    def _done(self, job: Ended, times: JobTimes, outcome: Outcome, labels: dict[str, str]) -> Done:
        usage, submitted_ms = outcome.usage, times.submitted_ms
        cached = usage.get("prompt_tokens_details")
        finished = FinishedRow(
            number=job.row.number,
            failed=not rows.succeeded(outcome),
            refused=rows.refused_by_engine(outcome),
            worker=labels.get(times.worker, times.worker),
            tokens_in=usage.get("prompt_tokens") or 0,
            tokens_out=usage.get("completion_tokens") or 0,
            queue_ms=_between(submitted_ms, times.started_ms),
            ttft_ms=_between(submitted_ms, times.first_token_ms),
            total_ms=_between(submitted_ms, times.finished_ms),
            tokens_cached=(cached.get("cached_tokens") or 0) if isinstance(cached, dict) else 0,
        )
        return job.row, rows.answered(job.handle.own_id, outcome), finished

    async def _again(self, lost: Sequence[Todo], why: tuple[str, str]) -> None:
        """Their jobs are gone without an answer: submit them again, but not for ever, and while others are collected.

        Each has its place, and nothing submits it now.

        A send can last: until there is room in a lane, or until a durable one is safe or has ended.
        """
        again: list[Todo] = []
        for row in lost:
            own_id = rows.row_id(self._batch_id, row.number, row.generation)
            pending = self._window.pending[own_id]
            if pending.sent >= MOST_SENDS:
                self._desk.refuse(row, *why, for_good=False)
                self._window.remove(own_id, row.number)
            elif self._collecting:
                pending.under_way = True
                again.append(row)
        if again:
            self._sends.add(asyncio.create_task(self._resend(again)))
        await self._desk.answer_twins()


def _between(begin_ms: int, end_ms: int) -> int | None:
    return max(0, end_ms - begin_ms) if end_ms else None
