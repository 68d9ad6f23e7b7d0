"""Submits rows: as many as the window has room for, again where Redis has no room."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from producer.batch.desk import Desk
from producer.batch.fetch import RowReader
from producer.batch.judge import in_row
from producer.batch.ledger import Ledger
from producer.batch.records import Todo
from producer.batch.rows import row_id
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
from protocol.messages import Endpoint
from protocol.states import Priority

ROWS_A_PAGE = 500
ROWS_A_TRIP = 100
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
SHORTEST_S = 0.001
"""A row can't have less time than that."""
LATER = (QueueFull, StoreFull, StoreUnavailable, LibraryMissing, UnknownModel)
"""Nothing is wrong with the row: it is submitted again. The last: Redis came back without the workers that it knew."""
THE_ROWS_FAULT = (InvalidRequest, ConflictingId, Unreadable)
"""Submitting it again would end the same way. The last: something else stands under the row's key."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all rows of a batch. `ends_at` is the event loop's time when the batch expires.

    `resumed`: rows may have been sent by an earlier run.
    """

    batch_id: str
    model: str
    endpoint: Endpoint
    priority: Priority
    ends_at: float | None
    durable: bool = False
    stream: bool = False
    resumed: bool = False


class Feeder:
    """Feeds a batch's rows to the fleet."""

    def __init__(self, fleet: Fleet, terms: Terms, reader: RowReader, book: Ledger, window: Window, desk: Desk) -> None:
        """Feed on `terms`."""
        self._fleet = fleet
        self._terms = terms
        self._reader = reader
        self._book = book
        self._window = window
        self._desk = desk

    async def feed(self) -> None:
        """Submit all rows that have no line yet, in the ledger's order."""
        after = 0
        while page := self._book.todo(after, ROWS_A_PAGE):
            after = page[-1].place
            while page:
                count = await self._window.room(min(len(page), ROWS_A_TRIP))
                now, page = page[:count], page[count:]
                await self.send([row for row in now if row.number not in self._window.early])
        self._window.close()

    async def send(self, rows: Sequence[Todo]) -> None:
        """Submit rows until each is accepted, refused for good, or has ended.

        Raises:
            FleetError: the fleet refuses any row, as when a right is missing.
        """
        for row in rows:
            self._window.add(self._own_id(row), row)
        pause, again = FIRST_PAUSE_S, self._terms.resumed
        while rows := await self._attempt(rows, again=again):
            await asyncio.sleep(pause)
            pause, again = min(2 * pause, LONGEST_PAUSE_S), True

    async def _attempt(self, rows: Sequence[Todo], *, again: bool) -> list[Todo]:
        """Submit rows once; those to submit again. `again`: they may have been before, by this run or an earlier one.

        One that ended before its second try has its line, and its job was forgotten: its id must not run anew. Nor
        must one that has failed by the time when Redis hears of it again.
        """
        rows = [row for row in rows if self._own_id(row) in self._window.pending]
        left_s = self._time_left_s()
        if left_s is not None:
            left_s = max(left_s, SHORTEST_S)
        requests = [self._request(row, left_s, again=again) for row in rows]
        with self._window.sending(map(self._own_id, rows)):
            answers = await self._fleet.submit_many(requests, patience_s=math.inf, durable=self._terms.durable)
        later = [row for row, answer in zip(rows, answers, strict=True) if not self._settle(row, answer)]
        await self._desk.answer_twins()
        return later

    def _settle(self, row: Todo, answer: Job | FleetError) -> bool:
        """Act on one answer; False: submit the row again."""
        own_id = self._own_id(row)
        if isinstance(answer, Job):
            self._window.accept(own_id, answer.handle)
        elif isinstance(answer, THE_ROWS_FAULT):
            # Its job may be an earlier run's, and have ended meanwhile: then it has its line.
            if own_id in self._window.pending:
                told = in_row(str(answer))[0] if isinstance(answer, InvalidRequest) else str(answer)
                self._desk.refuse(row, answer.code, told, for_good=True)
                self._window.remove(own_id, row.number)
        elif isinstance(answer, LATER):
            return False
        elif isinstance(answer, NotDurable):
            self._window.accept(own_id, Handle.parse(answer.handle), again=True)
            return False
        else:
            raise answer
        return True

    def _request(self, row: Todo, left_s: float | None, *, again: bool) -> JobRequest:
        return JobRequest(
            model=self._terms.model,
            body=self._reader.body(row),
            endpoint=self._terms.endpoint,
            priority=self._terms.priority,
            deadline=left_s,
            best_effort=True,
            id=self._own_id(row),
            reply_to=self._terms.batch_id,
            failure_stays=again,
            stream=self._terms.stream,
            # One trace of a million rows would help nobody.
            trace="",
            # The batch forgets its jobs itself; whoever follows a row must not take its answer away.
            delete_on_read=False,
        )

    def _time_left_s(self) -> float | None:
        ends_at = self._terms.ends_at
        return None if ends_at is None else ends_at - asyncio.get_running_loop().time()

    def _own_id(self, row: Todo) -> str:
        return row_id(self._terms.batch_id, row.number, row.generation)
