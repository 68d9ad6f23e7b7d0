"""Batches as their users see them: submit, look, watch, cancel, take the results, delete."""

import asyncio
import hashlib
import secrets
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, Unpack

from producer.batch.live import BatchRun
from producer.batch.outlets import Outlet
from producer.batch.service.glance import endpoint_of
from producer.batch.service.reading import names_in, records_of
from producer.batch.service.wishes import Wishes, described
from producer.batch.source import Patient, opened
from producer.batch.store import FileStore, StoredFile, store_at
from producer.batch.threads import in_thread
from producer.batch.workplace import whole_lines
from protocol import batch_reads, functions, log, wire
from protocol.batches import BatchName, BatchRecord, BatchSpec
from protocol.call import patiently, run
from protocol.errors import BatchActive, UnknownBatch, UnknownFile
from protocol.messages import Endpoint
from protocol.wire import JsonObject

if TYPE_CHECKING:
    from producer.fleet import Fleet

T = TypeVar("T")
LOOK_S = 0.5
"""How often a batch that is watched is looked at."""
SIGN_LATE_S = 1.5
"""A runner that is busy may be so late with its sign of life."""
BLOCK_LINES = 1_000
"""So many lines of results are read at once."""
_quiet = log.silent()
"""In the user's own process: what a hand wrote is for the operator, whose runner tells of it."""


class Batches:
    """The batches of one fleet's tenant. Another tenant's are unknown to it.

    Whatever has to do with files needs the store: `settings.store`, the folder that the batch runners have too.
    """

    def __init__(self, fleet: "Fleet", tenant: str = "") -> None:
        """Use a client's connection and settings; for `tenant`, the client's own by default."""
        self._fleet = fleet
        self._tenant = tenant or fleet.tenant

    async def submit(
        self,
        source: str | Path | BinaryIO,
        *,
        filename: str = "",
        endpoint: Endpoint | None = None,
        **wishes: Unpack[Wishes],
    ) -> BatchRecord:
        """Put a file of requests into the store, and have a batch runner run it.

        Args:
            source: a file, one that is open, or the id of one that is in the store already.
            filename: what the file is called, if it has no path; the ending `.gz` says that it is packed.
            endpoint: of all rows; that of the first valid row by default.
            wishes: see `Wishes`.

        Raises:
            InvalidRequest: an option breaks a rule; nothing was stored.
            SetupError: no store is set, or the file can't be opened.
            UnknownFile: there is no file of this id.
            OutputFailed, StoreFull, QueueFull: the store's disk or Redis is full; the tenant has too many batches.
        """
        spec = described(endpoint, **wishes)
        file, put_here = await self._kept(source, filename)
        try:
            path = self._store.path(self._tenant, file.id)
            found = endpoint or await asyncio.to_thread(endpoint_of, path)
            return await self.create(spec.model_copy(update={"input_file_id": file.id, "endpoint": found}))
        except BaseException:
            if put_here:
                await asyncio.to_thread(self._forget_file, file.id)
            raise

    async def create(self, spec: BatchSpec, key: str = "") -> BatchRecord:
        """A batch of a file that is in the store; errors as `submit`.

        With a `key` of the user's own, of any characters, the same description makes the same batch.

        Raises:
            ConflictingId: the key was used for another description.
        """
        token = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:24] if key else secrets.token_hex(12)
        name = BatchName(self._tenant, f"batch_{token}")
        await self._patient(lambda: run(self._fleet.redis, functions.batch_create(name, spec)))
        return await self.get(name.id)

    async def get(self, batch_id: str) -> BatchRecord:
        """A batch as it stands.

        Raises:
            UnknownBatch: there is none, or it is another tenant's.
        """
        name = BatchName.of(self._tenant, batch_id)
        record = await self._patient(lambda: run(self._fleet.redis, batch_reads.batch_record(name)))
        if record is None:
            raise UnknownBatch(
                "there is no such batch", "It was never submitted, was deleted, or the time that it was kept is over."
            )
        return record

    async def list(self, limit: int = 20, after: str = "") -> "list[BatchRecord]":
        """At most `limit` batches, the newest first; those behind the batch `after`, if it is given.

        A record that can't be read is left out.

        Raises:
            UnknownBatch: there is no batch `after`.
        """
        start = 0
        if after:
            name = BatchName.of(self._tenant, after)
            place = await self._patient(lambda: run(self._fleet.redis, batch_reads.batch_place(name)))
            if place is None:
                raise UnknownBatch("there is no such batch to list from")
            start = place + 1
        found: list[BatchRecord] = []
        more = limit > 0
        while more:
            names = await self._patient(partial(self._names, limit, start))
            found += await self._patient(partial(records_of, self._fleet.redis, names, _quiet))
            start += len(names)
            # A shorter page is the last.
            more = len(names) == limit and len(found) < limit
        return found[:limit]

    async def cancel(self, batch_id: str) -> BatchRecord:
        """Have a batch withdrawn; rows that are done stay in its output. One that is ending already is left alone.

        Raises:
            UnknownBatch: there is none.
        """
        name = BatchName.of(self._tenant, batch_id)
        await self._patient(lambda: run(self._fleet.redis, functions.batch_cancel(name)))
        return await self.get(batch_id)

    async def delete(self, batch_id: str) -> None:
        """Delete a batch that has ended, its results, and its input where no other batch has it.

        Raises:
            UnknownBatch: there is none.
            BatchActive: it has not ended.
            SetupError: no store is set.
        """
        record, store = await self.get(batch_id), self._store
        if not await self._patient(lambda: run(self._fleet.redis, functions.batch_drop(record.name))):
            raise BatchActive("the batch has not ended", f"Cancel it first: tokenfleet batch cancel {batch_id}.")
        shared = any(other.spec.input_file_id == record.spec.input_file_id for other in await self.list(limit=10_000))
        own = {record.output_file_id, record.error_file_id, None if shared else record.spec.input_file_id}
        for file_id in own - {None}:
            await asyncio.to_thread(self._forget_file, str(file_id))
        await asyncio.to_thread(store.workplace(record.name).clear)

    async def watch(
        self, batch_id: str, every_s: float = LOOK_S, *, each: bool = False
    ) -> AsyncGenerator[BatchRecord, None]:
        """The batch, again whenever it has changed, until it has ended; with `each` at every look, changed or not.

        Raises (while iterating):
            UnknownBatch: there is none, or no more.
        """
        last: BatchRecord | None = None
        while True:
            record = await self.get(batch_id)
            if each or record != last:
                yield record
            if record.status.terminal:
                return
            last = record
            await asyncio.sleep(every_s)

    async def results(self, batch_id: str, *, partial: bool = False) -> AsyncGenerator[JsonObject, None]:
        """Output lines, then error lines, as objects; with `partial` those that are there already.

        Raises (while iterating):
            UnknownBatch: there is none.
            BatchActive: it has not ended, and no part of it is asked for.
            SetupError: no store is set.
        """
        async for line in self.result_lines(batch_id, partial=partial):
            yield wire.loads(line)

    async def result_lines(self, batch_id: str, *, partial: bool = False) -> AsyncGenerator[bytes, None]:
        """As `results`, as the bytes that stand in the files, with their newlines."""
        record, store = await self.get(batch_id), self._store
        if not record.status.terminal and not partial:
            raise BatchActive("the batch has not ended", "Ask for what is there: --partial (partial=True).")
        for lines in await asyncio.to_thread(_parts, store, record):
            while block := await asyncio.to_thread(_some, lines):
                for line in block:
                    yield line

    async def has_runner(self) -> bool:
        """Whether some batch runner is there: without one, what is submitted waits.

        Raises:
            NotAllowed: the user's rights are from before users could look.
        """
        for wait_s in (0.0, SIGN_LATE_S):
            await asyncio.sleep(wait_s)
            if await self._patient(lambda: run(self._fleet.redis, batch_reads.runner_lives())):
                return True
        return False

    def run(self, source: str | Path, target: str | Path, **options: object) -> BatchRun:
        """Run a file in this process, without a runner: `async with fleet.batches.run(…) as run`.

        Takes what `run_batch` takes; see `BatchRun` for rows and tokens while it runs.
        """
        return BatchRun(self._fleet, source, target, options)

    @property
    def _store(self) -> FileStore:
        return store_at(self._fleet.settings.store)

    async def _names(self, limit: int, start: int) -> Sequence[BatchName]:
        return await names_in(self._fleet.redis, batch_reads.batch_ids(self._tenant, limit, start), _quiet)

    async def _patient(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await patiently(attempt, self._fleet.settings.redis_patience_s)

    async def _kept(self, source: str | Path | BinaryIO, filename: str) -> tuple[StoredFile, bool]:
        """The file in the store, and whether it was put there now; none, and no pipe is waited for, once broken off."""
        stop = threading.Event()
        return await in_thread(lambda: self._stored(source, filename, stop.is_set), stop, self._drop_new)

    def _stored(
        self, source: str | Path | BinaryIO, filename: str, stopped: Callable[[], bool]
    ) -> tuple[StoredFile, bool]:
        store = self._store
        if isinstance(source, str) and source.startswith("file-") and not Path(source).exists():
            return store.get(self._tenant, source), False
        if not isinstance(source, str | Path):
            return store.put(self._tenant, Patient(source, stopped), filename or "input.jsonl"), True
        path = Path(source)
        with opened(path) as reader:
            return store.put(self._tenant, Patient(reader, stopped), filename or path.name), True

    def _drop_new(self, kept: tuple[StoredFile, bool]) -> None:
        file, new = kept
        if new:
            self._forget_file(file.id)

    def _forget_file(self, file_id: str) -> None:
        with suppress(UnknownFile):
            self._store.delete(self._tenant, file_id)


def _parts(store: FileStore, record: BatchRecord) -> list[Iterator[bytes]]:
    tenant, place = record.name.tenant, store.workplace(record.name)
    if not record.status.terminal:
        ordered = record.spec.order == "input"
        return [_so_far(Outlet(path), ordered=ordered) for path in (place.output, place.errors)]
    ids = [file_id for file_id in (record.output_file_id, record.error_file_id) if file_id]
    return [whole_lines(store.path(tenant, file_id)) for file_id in ids]


def _so_far(outlet: Outlet, *, ordered: bool) -> Iterator[bytes]:
    """The lines of an output that grows; it takes the place of the file that lines are appended to before the end."""
    work = outlet.work(ordered=ordered)
    yield from whole_lines(work if work.exists() else outlet.path)


def _some(lines: Iterator[bytes]) -> list[bytes]:
    return list(islice(lines, BLOCK_LINES))
