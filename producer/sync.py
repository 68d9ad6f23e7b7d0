"""The client for scripts: the same calls without `await`."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

from producer.batch.live import BatchRun
from producer.batch.progress import Progress
from producer.batch.tally import BatchSummary
from producer.events import Event
from producer.fleet import AnyHandle, Fleet
from producer.jobs import Job, JobInfo
from producer.requests import JobRequest
from producer.status import FleetStatus
from protocol.batches import BatchRecord
from protocol.errors import FleetError
from protocol.handle import Handle
from protocol.messages import ModelRecord, Outcome
from protocol.settings import Settings
from protocol.states import State
from protocol.wire import JsonObject

T = TypeVar("T")


class SyncFleet:
    """`Fleet` for code without an event loop; it runs one in a thread. Use it as `with SyncFleet(…) as fleet`.

    Each method does what its namesake in `Fleet` does, with the same arguments and errors.
    """

    def __init__(self, url: str | None = None, *, tenant: str = "", settings: Settings | None = None) -> None:
        """As `Fleet`."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tokenfleet", daemon=True)
        self._thread.start()
        try:
            self._fleet = self._run(_make(url, tenant, settings))
        except FleetError:
            self._stop()
            raise

    def __enter__(self) -> Self:
        """Nothing to prepare."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """As `Fleet.close`; idempotent."""
        if not self._loop.is_closed():
            self._run(self._fleet.close())
            self._stop()

    def submit(self, **request: Any) -> "SyncJob":  # noqa: ANN401 - the arguments of Fleet.submit, checked there
        """As `Fleet.submit`."""
        return self._job(self._run(self._fleet.submit(**request)))

    def submit_many(self, requests: Iterable[JobRequest], *, durable: bool = False) -> list["SyncJob | FleetError"]:
        """As `Fleet.submit_many`."""
        answers = self._run(self._fleet.submit_many(requests, durable=durable))
        return [answer if isinstance(answer, FleetError) else self._job(answer) for answer in answers]

    def job(self, handle: "AnyHandle | SyncJob") -> JobInfo:
        """As `Fleet.job`."""
        return self._run(self._fleet.job(_plain(handle)))

    def result(self, handle: "AnyHandle | SyncJob", timeout: float | None = None) -> Outcome:
        """As `Fleet.result`."""
        return self._run(self._fleet.result(_plain(handle), timeout))

    def follow(self, handle: "AnyHandle | SyncJob", after: str = "") -> Generator[Event, None, None]:
        """As `Fleet.follow`."""
        return self._iterate(self._fleet.follow(_plain(handle), after))

    def text(self, handle: "AnyHandle | SyncJob") -> Generator[str, None, None]:
        """As `Fleet.text`."""
        return self._iterate(self._fleet.text(_plain(handle)))

    def cancel(self, handle: "AnyHandle | SyncJob") -> State:
        """As `Fleet.cancel`."""
        return self._run(self._fleet.cancel(_plain(handle)))

    def forget(self, handle: "AnyHandle | SyncJob", attempt: int) -> bool:
        """As `Fleet.forget`."""
        return self._run(self._fleet.forget(_plain(handle), attempt))

    def models(self) -> dict[str, ModelRecord]:
        """As `Fleet.models`."""
        return self._run(self._fleet.models())

    def status(self) -> FleetStatus:
        """As `Fleet.status`."""
        return self._run(self._fleet.status())

    @property
    def batches(self) -> "SyncBatches":
        """As `Fleet.batches`."""
        return SyncBatches(self)

    def ready(self, model: str, timeout: float = 60.0) -> None:
        """As `Fleet.ready`."""
        self._run(self._fleet.ready(model, timeout))

    def _job(self, job: Job) -> "SyncJob":
        return SyncJob(job.handle, job.created, self)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C in the caller's thread: what waits in the other one must not go on.
            future.cancel()
            raise

    def _iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        try:
            while item := self._run(_next(items)):
                yield item[0]
        finally:
            if not self._loop.is_closed():
                self._run(items.aclose())

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncBatches:
    """`Batches` without `await`: each method does what its namesake does, with the same arguments and errors."""

    def __init__(self, fleet: SyncFleet) -> None:
        """Use a client."""
        self._fleet = fleet
        self._batches = fleet._fleet.batches  # noqa: SLF001 - two halves of one client

    def submit(self, source: str | Path | BinaryIO, **options: Any) -> BatchRecord:  # noqa: ANN401 - checked there
        """As `Batches.submit`."""
        return self._run(self._batches.submit(source, **options))

    def get(self, batch_id: str) -> BatchRecord:
        """As `Batches.get`."""
        return self._run(self._batches.get(batch_id))

    def list(self, limit: int = 20, after: str = "") -> "list[BatchRecord]":
        """As `Batches.list`."""
        return self._run(self._batches.list(limit, after))

    def cancel(self, batch_id: str) -> BatchRecord:
        """As `Batches.cancel`."""
        return self._run(self._batches.cancel(batch_id))

    def delete(self, batch_id: str) -> None:
        """As `Batches.delete`."""
        self._run(self._batches.delete(batch_id))

    def watch(self, batch_id: str) -> Generator[BatchRecord, None, None]:
        """As `Batches.watch`."""
        return self._fleet._iterate(self._batches.watch(batch_id))  # noqa: SLF001 - as above

    def results(self, batch_id: str, *, partial: bool = False) -> Generator[JsonObject, None, None]:
        """As `Batches.results`."""
        return self._fleet._iterate(self._batches.results(batch_id, partial=partial))  # noqa: SLF001 - as above

    def run(self, source: str | Path, target: str | Path, **options: Any) -> "SyncBatchRun":  # noqa: ANN401 - checked there
        """As `Batches.run`: `with fleet.batches.run(…) as run`. What is called back is called in another thread."""
        return SyncBatchRun(self._fleet, self._batches.run(source, target, **options))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._fleet._run(work)  # noqa: SLF001 - as above


class SyncBatchRun:
    """`BatchRun` without `await`: `with fleet.batches.run(source, target) as run`, and `for line in run` inside."""

    def __init__(self, fleet: SyncFleet, run: BatchRun) -> None:
        """Use `SyncBatches.run`."""
        self._fleet, self._batch = fleet, run

    def __enter__(self) -> Self:
        """Begin."""
        self._run(self._batch.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As at the end of a `BatchRun`'s block."""
        self._run(self._batch.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[JsonObject]:
        """As with `async for`: each line as an object, as soon as it is written."""
        return self._fleet._iterate(aiter(self._batch))  # noqa: SLF001 - two halves of one client

    @property
    def batch_id(self) -> str:
        """As `BatchRun.batch_id`."""
        return self._batch.batch_id

    @property
    def progress(self) -> Progress | None:
        """As `BatchRun.progress`."""
        return self._batch.progress

    def summary(self) -> BatchSummary:
        """As `BatchRun.summary`."""
        return self._run(self._batch.summary())

    def handle(self, line: int) -> Handle:
        """As `BatchRun.handle`."""
        return self._run(self._batch.handle(line))

    def text(self, line: int) -> Generator[str, None, None]:
        """As `BatchRun.text`."""
        return self._fleet._iterate(self._batch.text(line))  # noqa: SLF001 - as above

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._fleet._run(work)  # noqa: SLF001 - as above


async def _next(items: AsyncGenerator[T, None]) -> tuple[T] | None:
    """The next item, boxed; None at the end."""
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None


def _plain(handle: "AnyHandle | SyncJob") -> AnyHandle:
    return handle.handle if isinstance(handle, SyncJob) else handle


async def _make(url: str | None, tenant: str, settings: Settings | None) -> Fleet:
    """Inside the loop that the client will use."""
    return Fleet(url, tenant=tenant, settings=settings)


@dataclass(frozen=True, slots=True)
class SyncJob:
    """`Job` without `await`."""

    handle: Handle
    created: bool
    fleet: SyncFleet

    def __str__(self) -> str:
        """The handle, as the command line takes it."""
        return str(self.handle)

    def result(self, timeout: float | None = None) -> Outcome:
        """As `Fleet.result`."""
        return self.fleet.result(self.handle, timeout)

    def follow(self, after: str = "") -> Generator[Event, None, None]:
        """As `Fleet.follow`."""
        return self.fleet.follow(self.handle, after)

    def text(self) -> Generator[str, None, None]:
        """As `Fleet.text`."""
        return self.fleet.text(self.handle)

    def cancel(self) -> State:
        """As `Fleet.cancel`."""
        return self.fleet.cancel(self.handle)

    def info(self) -> JobInfo:
        """As `Fleet.job`."""
        return self.fleet.job(self.handle)
