"""The rows that are in Redis: never more than the window holds, however long the file is."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from producer.batch.records import Todo
from protocol.errors import InvalidRequest
from protocol.handle import Handle, Shard


@dataclass(slots=True)
class Pending:
    """A row on its way."""

    row: Todo
    handle: Handle | None = None
    """None until it was accepted."""
    sent: int = 0
    """How often it was submitted: more than once when Redis lost it."""
    under_way: bool = True
    """Whether it is still to be submitted (again), or its submit to be answered."""


class Window:
    """Places for rows; the id of the row's job names it."""

    def __init__(self, size: int, shards: Iterable[Shard] = ()) -> None:
        """All places are free; `shards` may hold rows of an earlier run.

        Raises:
            InvalidRequest: there is none.
        """
        if size < 1:
            raise InvalidRequest("window: it must be at least 1")
        self._size = size
        self._room = asyncio.Event()
        self._news = asyncio.Event()
        self._sends: dict[asyncio.Event, frozenset[str]] = {}
        self.pending: dict[str, Pending] = {}
        self.shards: list[Shard] = list(shards)
        """Every shard that ever took a row."""
        self.closed = False
        """True once no new row will come."""
        self.early: set[int] = set()
        """Rows that ended before they were sent: an earlier run had sent them."""
        self.withdrawn: set[str] = set()
        """Jobs that were cancelled by us: their ends are nobody's answer."""
        if self.shards:
            self._news.set()

    async def room(self, most: int) -> int:
        """Wait for a free place; how many there are, at most `most`."""
        while len(self.pending) >= self._size:
            self._room.clear()
            await self._room.wait()
        return min(most, self._size - len(self.pending))

    def add(self, own_id: str, row: Todo) -> None:
        """Take a place, before the row is submitted: its end may be told before the submit's answer is here."""
        pending = self.pending.setdefault(own_id, Pending(row))
        pending.sent, pending.under_way = pending.sent + 1, True

    @contextmanager
    def sending(self, own_ids: Iterable[str]) -> Iterator[None]:
        """For as long as their submit is under way: Redis may get it at any moment, or a second time."""
        answered = asyncio.Event()
        self._sends[answered] = frozenset(own_ids)
        try:
            yield
        finally:
            del self._sends[answered]
            answered.set()

    def idle(self, own_id: str) -> bool:
        """Whether the row has a place, was accepted, and nothing submits it now."""
        return own_id in self.pending and not self.pending[own_id].under_way

    async def sent(self, own_ids: Iterable[str]) -> None:
        """Wait until no submit of these is under way."""
        ids = frozenset(own_ids)
        for answered in [answered for answered, sends in self._sends.items() if sends & ids]:
            await answered.wait()

    def accept(self, own_id: str, handle: Handle, *, again: bool = False) -> None:
        """The row was submitted, and is `again`."""
        if pending := self.pending.get(own_id):
            pending.handle, pending.under_way = handle, again
        if handle.shard not in self.shards:
            self.shards.append(handle.shard)
        self._news.set()

    def remove(self, own_id: str, number: int, *, early: bool = True) -> None:
        """The row is done: its place is free. One that had none is not sent any more, if it is `early`."""
        if self.pending.pop(own_id, None):
            self._room.set()
        elif early:
            self.early.add(number)

    def close(self) -> None:
        """No new row will come."""
        self.closed = True
        self._news.set()

    async def news(self) -> None:
        """Wait until some row was accepted, or none will come."""
        await self._news.wait()
