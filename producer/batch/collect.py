"""Takes the results of a batch's rows: by the notices of their ends, and by looking where notices stay away."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from producer.batch import rows
from producer.batch.desk import Desk, Written
from producer.batch.lines import BadRow, Row
from producer.batch.results import Ended, Results
from producer.batch.tally import FinishedRow
from producer.batch.window import Window
from producer.jobs import JobInfo
from protocol.messages import DoneNotice, JobRecord, Outcome

SILENCE_S = 5.0
"""After so long without a notice, look at the jobs themselves."""
MOST_SENDS = 3

Resend = Callable[[Sequence[Row]], Awaitable[None]]


class Collector:
    """Writes each ended row, then forgets its job."""

    def __init__(self, results: Results, window: Window, desk: Desk, resend: Resend) -> None:
        """`resend` submits rows that Redis has lost."""
        self._results = results
        self._window = window
        self._desk = desk
        self._resend = resend

    async def collect(self) -> None:
        """Until the window is closed and empty."""
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        while self._window.pending or not self._window.closed:
            if notices := await self._notices():
                await self._take(notices)
            elif loop.time() - heard_at >= SILENCE_S:
                await self._look()
            else:
                continue
            heard_at = loop.time()

    async def _notices(self) -> list[DoneNotice]:
        if shards := tuple(self._window.shards):
            return await self._results.notices(shards)
        await self._window.news()
        return []

    async def _take(self, notices: Iterable[DoneNotice]) -> None:
        """Rows that are done already, or wait for another run, need no look: their notices only go."""
        ended, stale = {}, []
        for notice in notices:
            own_id, job = notice.handle.own_id, Ended(notice.handle, notice.attempt, notice)
            if own_id in self._window.pending and own_id not in ended:
                ended[own_id] = job
            else:
                stale.append(job)
        await self._results.forget(stale)
        await self._finish(list(ended.values()))

    async def _look(self) -> None:
        """What became of the rows that nobody told of."""
        handles = [row.handle for row in self._window.pending.values() if row.handle]
        standings = await self._results.standings(handles)
        found = list(zip(handles, standings, strict=True))
        await self._finish([Ended(handle, s.attempt) for handle, s in found if s and s.state.terminal])
        await self._lost([handle.own_id for handle, standing in found if standing is None])

    async def _finish(self, ended: Sequence[Ended]) -> None:
        """Write first, then forget: after a crash a line may be there twice, but none is missing."""
        found = list(zip(ended, await self._results.outcomes(ended), strict=True))
        here = [(job, *pair) for job, pair in found if pair]
        labels = await self._results.labels([(job.handle.shard, record) for job, record, _ in here])
        self._desk.write([self._written(job, record, outcome, labels) for job, record, outcome in here])
        await self._results.forget([job for job, _, _ in here])
        for job, _, _ in here:
            self._window.remove(job.handle.own_id)
        await self._lost([job.handle.own_id for job, pair in found if not pair])

    def _written(self, job: Ended, record: JobRecord, outcome: Outcome, labels: dict[str, str]) -> Written:
        own_id = job.handle.own_id
        row, info, usage = self._window.pending[own_id].row, JobInfo(str(job.handle), record, None), outcome.usage
        finished = FinishedRow(
            number=row.number,
            failed=not rows.succeeded(outcome),
            worker=labels.get(record.worker, record.worker),
            tokens_in=usage.get("prompt_tokens") or 0,
            tokens_out=usage.get("completion_tokens") or 0,
            queue_ms=info.queue_ms,
            ttft_ms=info.ttft_ms,
        )
        return rows.answered(own_id, row.custom_id, outcome), finished

    async def _lost(self, own_ids: Sequence[str]) -> None:
        """Redis came back without them: submit them again, but not for ever."""
        again = []
        for own_id in own_ids:
            pending = self._window.pending[own_id]
            if pending.sent < MOST_SENDS:
                again.append(pending.row)
                continue
            row = pending.row
            self._desk.refuse([BadRow(row.number, row.custom_id, "lost", "the store lost the job several times")])
            self._window.remove(own_id)
        if again:
            await self._resend(again)
