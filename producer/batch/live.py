"""A batch that runs in this process, looked at while it does: its lines as they end, its progress, one row's tokens."""

import asyncio
import gzip
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from producer.batch.outlets import PACKED
from producer.batch.output import STANDARD
from producer.batch.progress import Progress
from producer.batch.rows import row_id
from producer.batch.run import run_batch
from producer.batch.tally import BatchSummary
from producer.batch.workplace import whole_lines
from producer.routing import shard_of
from protocol import reads, wire
from protocol.call import patiently, run
from protocol.errors import FleetError, InvalidRequest, UnknownJob
from protocol.handle import Handle
from protocol.wire import JsonObject

if TYPE_CHECKING:
    from producer.fleet import Fleet

LOOK_S = 0.05
"""How often the files, or Redis, are looked at while something is waited for."""


class BatchRun:
    """One run: `async with fleet.batches.run(source, target) as batch`.

    The end of the block waits for the end of the run. Where an iteration over its lines was left early, by `break` or
    `return`, or an exception leaves the block, the run is broken off instead: rows without an answer get the line of
    a batch that was cancelled, and `resume=True` goes on. An iteration in another task has to end before the block.

    Attributes:
        batch_id: the batch's; a row's job id is this and its line.
        progress: where it stands; None until the input is validated.
    """

    def __init__(self, fleet: "Fleet", source: str | Path, target: str | Path, options: Mapping[str, Any]) -> None:
        """Run `source` to `target` with the options of `run_batch`."""
        self.progress: Progress | None = None
        self.batch_id: str = options.get("batch_id") or f"batch-{secrets.token_hex(6)}"
        self._fleet = fleet
        self._target, self._errors = target, options.get("errors")
        self._settings = {**options, "batch_id": self.batch_id}
        self._source = source
        self._running: asyncio.Task[BatchSummary] | None = None
        self._unread = False
        """Whether an iteration was begun, and none came to the end."""

    async def __aenter__(self) -> Self:
        """Begin."""
        told = self._settings.pop("on_progress", None)

        def notice(news: Progress) -> None:
            # One that is resumed has kept its own id.
            self.progress, self.batch_id = news, news.batch_id
            if told:
                told(news)

        working = run_batch(self._fleet, self._source, self._target, on_progress=notice, **self._settings)
        self._running = asyncio.create_task(working)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for its end; an exception inside the block, or an iteration that was left early, breaks it off instead.

        Raises:
            FleetError: what `run_batch` raises.
        """
        if kind is None and (self._task.done() or not self._unread):
            await self.summary()
            return
        self._task.cancel()
        (end,) = await asyncio.gather(self._task, return_exceptions=True)
        if kind is None and isinstance(end, FleetError):
            raise end

    async def summary(self) -> BatchSummary:
        """The figures, once it has ended; raises what `run_batch` raises.

        Raises:
            InvalidRequest: it was broken off.
        """
        if self._task.cancelled():
            raise InvalidRequest("the batch was broken off", "resume=True goes on with it.")
        return await self._task

    async def __aiter__(self) -> AsyncGenerator[JsonObject, None]:
        """Each output or error line as an object, as soon as it is written; those of an earlier run first.

        With `order="input"` they come in that order, and so when all are there; a packed file's too. Once begun, it
        has to come to its end: see the class.

        Raises (while iterating):
            InvalidRequest: a file is stdout; nothing has run if this comes first.
            FleetError: what `run_batch` raises.
        """
        places = dict.fromkeys(map(_file, filter(None, (self._target, self._errors))), 0)
        self._unread = True
        ordered = self._settings.get("order") == "input"
        ended = False
        while not ended:
            ended = self._task.done()
            for path in [path for path in places if self.progress and (ended or not (ordered or _packed(path)))]:
                lines = await asyncio.to_thread(_lines, path, places[path])
                places[path] += sum(map(len, lines))
                for line in lines:
                    yield wire.loads(line)
            if not ended:
                await asyncio.wait({self._task}, timeout=LOOK_S)
        self._unread = False
        await self.summary()

    async def handle(self, line: int) -> Handle:
        """The job of the row at this line of the input, once it is in Redis; `fleet.follow` shows it.

        With the option `stream` its tokens come while they are made, else as one piece at its end.

        Raises:
            UnknownJob: the batch has ended, or that row has.
        """
        while not self._task.done():
            if found := await patiently(
                lambda: self._find(row_id(self.batch_id, line)), self._fleet.settings.redis_patience_s
            ):
                return found
            await asyncio.wait({self._task}, timeout=LOOK_S)
        raise UnknownJob("the row is not running", "The batch has ended.")

    async def text(self, line: int) -> AsyncGenerator[str, None]:
        """What the row at this line says, piece by piece; raises as `handle`.

        It may end a piece early: the batch forgets a job once the row's line, which has all of it, is written.
        """
        handle = await self.handle(line)
        with suppress(UnknownJob):
            async for piece in self._fleet.text(handle):
                yield piece

    async def _find(self, own_id: str) -> Handle | None:
        redis, tenant = self._fleet.redis, self._fleet.tenant
        for record in (await run(redis, reads.models())).values():
            handle = Handle(shard_of(record, tenant, own_id), tenant, own_id)
            if await run(redis, reads.standing(handle)):
                return handle
        return None

    @property
    def _task(self) -> "asyncio.Task[BatchSummary]":
        if self._running is None:
            raise InvalidRequest("the batch has not begun", "Use it as: async with fleet.batches.run(…) as batch.")
        return self._running


def _file(path: str | Path) -> Path:
    if str(path) == STANDARD:
        raise InvalidRequest("the lines of a batch that goes to stdout can't be read here", "Name a file.")
    return Path(path)


def _packed(path: Path) -> bool:
    return path.name.endswith(PACKED)


def _lines(path: Path, start: int) -> list[bytes]:
    if not _packed(path):
        return list(whole_lines(path, start))
    with suppress(FileNotFoundError), gzip.open(path) as reader:
        return reader.readlines()
    return []
