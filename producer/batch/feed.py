"""Submits rows: as many as the window has room for, again where Redis has no room."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from producer.batch.desk import Desk, own_id
from producer.batch.lines import BadRow, Line, Row, parse
from producer.batch.tally import BatchSummary
from producer.batch.window import Window
from producer.fleet import Fleet
from producer.jobs import Job
from producer.requests import JobRequest
from protocol.errors import (
    ConflictingId,
    FleetError,
    InvalidRequest,
    LibraryMissing,
    NotDurable,
    QueueFull,
    StoreFull,
    StoreUnavailable,
    UnknownModel,
    Unreadable,
)
from protocol.handle import Handle
from protocol.states import Priority

ROWS_A_TRIP = 100
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
SHORTEST_S = 0.001
"""A row can't have less time than that."""
LATER = (QueueFull, StoreFull, StoreUnavailable, LibraryMissing)
"""Nothing is wrong with the row: it is submitted again."""
THE_ROWS_FAULT = (InvalidRequest, UnknownModel, ConflictingId, Unreadable)
"""Submitting it again would end the same way. The last: something else stands under the row's key."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all rows of a batch. `ends_at` is the event loop's time when the batch expires."""

    model: str
    priority: Priority
    ends_at: float | None
    limit: int | None
    durable: bool = False


class Feeder:
    """Feeds a batch's rows to the fleet."""

    def __init__(self, fleet: Fleet, terms: Terms, window: Window, desk: Desk, summary: BatchSummary) -> None:
        """Feed on `terms`."""
        self._fleet = fleet
        self._terms = terms
        self._window = window
        self._desk = desk
        self._summary = summary
        self.done: dict[int, bool] = {}

    async def feed(self, blocks: AsyncIterator[list[Line | BadRow]]) -> None:
        """Submit all rows, or the first `limit` of them."""
        async for lines in blocks:
            left = len(lines) if self._terms.limit is None else self._terms.limit - self._summary.rows_in
            await self._feed([parse(line) if isinstance(line, Line) else line for line in lines[:left]])
            if self._summary.rows_in == self._terms.limit:
                break
        self._window.close()

    async def _feed(self, rows: Sequence[Row | BadRow]) -> None:
        rows = [row for row in rows if row.number not in self.done]
        self._summary.rows_in += len(rows)
        self._desk.refuse([row for row in rows if isinstance(row, BadRow)])
        good = [row for row in rows if isinstance(row, Row)]
        while good:
            count = await self._window.room(min(len(good), ROWS_A_TRIP))
            now, good = good[:count], good[count:]
            await self.send(now)

    async def send(self, rows: Sequence[Row]) -> None:
        """Submit rows until each is accepted or refused for good.

        Raises:
            FleetError: the fleet refuses any row, as when a right is missing.
        """
        for row in rows:
            self._window.add(self._own_id(row), row)
        pause = FIRST_PAUSE_S
        while rows := await self._attempt(rows):
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _attempt(self, rows: Sequence[Row]) -> list[Row]:
        """Submit rows once; those to submit again."""
        left_s = self._time_left_s()
        if left_s is not None and left_s < SHORTEST_S:
            for row in rows:
                self._refuse(row, "batch_expired", "the batch's deadline passed before the row was submitted")
            return []
        requests = [self._request(row, left_s) for row in rows]
        answers = await self._fleet.submit_many(requests, patience_s=math.inf, durable=self._terms.durable)
        return [row for row, answer in zip(rows, answers, strict=True) if not self._settle(row, answer)]

    def _settle(self, row: Row, answer: Job | FleetError) -> bool:
        """Act on one answer; False: submit the row again."""
        if isinstance(answer, Job):
            self._window.accept(self._own_id(row), answer.handle)
        elif isinstance(answer, THE_ROWS_FAULT):
            self._refuse(row, answer.code, str(answer))
        elif isinstance(answer, LATER):
            return False
        elif isinstance(answer, NotDurable):
            self._window.accept(self._own_id(row), Handle.parse(answer.handle))
            # Unless it has ended meanwhile, and its answer is written: its id must not run anew.
            return self._own_id(row) not in self._window.pending
        else:
            raise answer
        return True

    def _refuse(self, row: Row, code: str, message: str) -> None:
        self._desk.refuse([BadRow(row.number, row.custom_id, code, message)])
        self._window.remove(self._own_id(row))

    def _request(self, row: Row, left_s: float | None) -> JobRequest:
        return JobRequest(
            model=self._terms.model,
            body=row.body,
            endpoint=row.endpoint,
            priority=self._terms.priority,
            deadline=left_s,
            best_effort=True,
            id=self._own_id(row),
            reply_to=self._summary.batch_id,
        )

    def _time_left_s(self) -> float | None:
        ends_at = self._terms.ends_at
        return None if ends_at is None else ends_at - asyncio.get_running_loop().time()

    def _own_id(self, row: Row) -> str:
        return own_id(self._summary.batch_id, row.number)
