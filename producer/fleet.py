"""The client: submit jobs, follow them, wait for them, look at them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from redis.asyncio import Redis

from producer.events import Event, Tokens
from producer.hub import Hub
from producer.jobs import Job, JobInfo
from producer.prepare import Defaults
from producer.reader import Reader
from producer.replay import replay
from producer.requests import Deadline, Duration, JobRequest, Prompt
from producer.scope import Scope
from producer.status import FleetStatus, read_status
from producer.submitting import Submitter
from producer.workers import is_served
from protocol import failpoints, functions, reads, store
from protocol.call import patiently, run, value_of
from protocol.durability import Wish
from protocol.errors import FleetError, InvalidId, UnknownJob, WaitTimeout
from protocol.handle import Handle, check_name
from protocol.limits import Bucket
from protocol.messages import Endpoint, ModelRecord, Outcome
from protocol.settings import Settings
from protocol.states import Priority, State
from protocol.wire import JsonObject

if TYPE_CHECKING:
    from producer.batch.service.client import Batches

T = TypeVar("T")
READY_PAUSE_S = 0.05
AnyHandle = Handle | Job | str


class Fleet:
    """A client of one fleet, for one event loop; use it as `async with Fleet(…) as fleet`.

    Every call waits for a Redis that is away, `settings.redis_patience_s` seconds at most, then raises
    `StoreUnavailable`. A submit that was repeated meanwhile is still one job.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        redis: Redis | None = None,
        tenant: str = "",
        settings: Settings | None = None,
    ) -> None:
        """Connect at the first call, to `url` as it is, else to `settings.store_url`; or use `redis`, which stays open.

        Jobs are submitted for `tenant`, `default` when it is empty. With `settings.tenant` the client acts for that
        one only: all other tenants' jobs are unknown to it.

        Raises:
            SetupError: the URL or a setting is malformed.
            InvalidId: the tenant's name is.
            InvalidRequest: `tenant` is another one than `settings.tenant`.
        """
        failpoints.arm()
        settings = settings or Settings.load()
        self.settings = settings.for_url(url) if url else settings
        self.scope = Scope(self.settings.tenant)
        self.tenant = check_name("tenant", self.scope.tenant(tenant, "default"))
        self.redis = redis if redis is not None else store.connect(self.settings.store_url)
        self._owns_redis = redis is None
        self._patience_s = self.settings.redis_patience_s
        self._hub = Hub(self.redis)
        self._reader = Reader(self.redis, self._hub, self._patience_s)
        kept = (
            self.settings.deadline_s,
            self.settings.keep_s,
            self.settings.max_body_bytes,
            self.settings.delete_on_read,
        )
        self._submitter = Submitter(self.redis, Defaults(self.tenant, *kept, scope=self.scope))

    async def __aenter__(self) -> Self:
        """Nothing to prepare: the first call connects."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close the connections; jobs go on."""
        await self._hub.close()
        if self._owns_redis:
            await self.redis.aclose()

    async def submit(  # noqa: PLR0913 - a request's fields, as in JobRequest
        self,
        *,
        model: str = "",
        messages: list[JsonObject] | None = None,
        prompt: Prompt | None = None,
        input: Prompt | None = None,  # noqa: A002 - the OpenAI name
        body: JsonObject | None = None,
        endpoint: Endpoint | None = None,
        priority: Priority | str = "high",
        deadline: Deadline | None = None,
        tenant: str = "",
        stream: bool = False,
        best_effort: bool = False,
        delay: Duration = 0,
        time_limit: Duration | None = None,
        cancel_unfollowed: Duration | None = None,
        keep: Duration | None = None,
        delete_on_read: bool | None = None,
        id: str = "",  # noqa: A002 - the word that users know
        reply_to: str = "",
        bucket: Bucket | None = None,
        durable: bool = False,
        **params: Any,  # noqa: ANN401 - members of an OpenAI body have all JSON types
    ) -> Job:
        """Submit one job, with `durable` until it is safe; `JobRequest` explains the fields, `params` go into the body.

        Raises:
            InvalidRequest, UnknownModel, ConflictingId: a rule is broken; nobody served it; the id has another body.
            QueueFull, StoreFull, LibraryMissing: the lane, or the tenant's half of it, or Redis is full; or never led.
            QuotaExceeded: the tenant has used up its quota; `retry_after_s` says when to try again.
            RateLimited: the same of the API key's limits that `bucket` names.
            StoreUnavailable: Redis stayed away; the job may have been accepted: submit its id again to know.
            NotDurable, SetupError: it stays submitted, and was not known to be safe in time; or Redis cannot tell.
        """
        fields = locals()
        given = {name: value for name, value in fields.items() if name not in ("self", "params", "durable")}
        return value_of((await self.submit_many([JobRequest(**given, params=params)], durable=durable))[0])

    async def submit_many(
        self, requests: Iterable[JobRequest], *, patience_s: float | None = None, durable: bool = False
    ) -> list[Job | FleetError]:
        """Submit many, 500 in a round trip; a refused one has its error in its place, as `submit` would raise it.

        Args:
            requests: the jobs.
            patience_s: how long to wait for a Redis that is away; the settings' time by default.
            durable: return once a replica has them, where one is connected, and the disk, where Redis can tell.

        Raises:
            StoreUnavailable: Redis was away from the beginning; nothing was submitted.
            SetupError: `durable` was asked of a Redis that cannot tell when a write is safe.
        """
        patience_s = self._patience_s if patience_s is None else patience_s
        wish = Wish(self.settings.durable_replicas, self.settings.durable_timeout_s) if durable else None
        answers = await self._submitter.submit(list(requests), patience_s, wish)
        return [
            answer if isinstance(answer, FleetError) else Job(answer[0], answer[1].created, self, answer[1].allowance)
            for answer in answers
        ]

    async def job(self, handle: AnyHandle) -> JobInfo:
        """Look at a job: its record, its place in its lane, its waits.

        Raises:
            UnknownJob: there is no such job, or no more.
        """
        handle = self._known(handle)
        record = await self._patient(lambda: run(self.redis, reads.job_record(handle)))
        if record is None:
            raise UnknownJob("there is no such job", "It was never submitted, was forgotten, or has expired.")
        queued = record.state is State.QUEUED
        place = await self._patient(lambda: run(self.redis, reads.lane_place(handle, record))) if queued else None
        return JobInfo(str(handle), record, place)

    async def result(self, handle: AnyHandle, timeout: float | None = None) -> Outcome:
        """Wait for a job's end; the outcome says which of the four ends it was, and has the response.

        Raises:
            WaitTimeout: it did not end within `timeout` seconds; the job goes on.
            UnknownJob: there is no such job, or no more.
        """
        return await self._reader.result(self._known(handle), timeout)

    def follow(self, handle: AnyHandle, after: str = "", *, new: bool = False) -> AsyncGenerator[Event, None]:
        """A job's events: each frame once, in order, however late one comes or how often the connection breaks.

        Args:
            handle: the job. One that does not stream shows its whole text at its end.
            after: the id of the last event that you have, to go on from there.
            new: a submit that has just returned created it: saves a read; what was missed is read a moment later.

        Raises (while iterating):
            UnknownJob: there is no such job, or no more.
            InvalidRequest: `after` is no event's id.
        """
        return self._reader.follow(self._known(handle), after, new=new)

    async def text(self, handle: AnyHandle) -> AsyncGenerator[str, None]:
        """A job's text, piece by piece, until the job ends in any way; `follow` also tells of restarts and of the end.

        Raises (while iterating):
            UnknownJob: there is no such job, or no more.
        """
        async for event in self.follow(handle):
            if isinstance(event, Tokens) and event.text:
                yield event.text

    async def cancel(self, handle: AnyHandle) -> State:
        """End a job at once, wherever it is; yields its state before, a terminal one when there was nothing to do.

        Raises:
            UnknownJob: there is no such job.
        """
        handle = self._known(handle)
        return await self._patient(lambda: run(self.redis, functions.cancel(handle)))

    async def replay(self, handle: AnyHandle) -> Job:
        """Run a job anew that was set aside; it keeps its id.

        Raises:
            NotDead: no such job was set aside.
            QueueFull, StoreFull: as `submit`.
        """
        handle = self._known(handle)
        submitted = await replay(self.redis, handle, self._patience_s)
        return Job(handle, submitted.created, self)

    async def forget(self, handle: AnyHandle, attempt: int) -> bool:
        """Delete an ended job whose outcome named `attempt`; False when it is another run by now, or lives."""
        handle = self._known(handle)
        return await self._patient(lambda: run(self.redis, functions.forget(handle, attempt)))

    @cached_property
    def batches(self) -> "Batches":
        """Batches: files of requests, run by the fleet's batch runners or by this process."""
        from producer.batch.service.client import Batches  # noqa: PLC0415 - it runs batches by this module's client

        return Batches(self)

    async def models(self) -> dict[str, ModelRecord]:
        """All models that were ever registered."""
        return await self._patient(lambda: run(self.redis, reads.models()))

    async def status(self) -> FleetStatus:
        """Lanes, workers, what is due and what is dead, in each shard."""
        return await self._patient(lambda: read_status(self.redis))

    async def ready(self, model: str, timeout: float = 60.0) -> None:
        """Wait until a worker that holds a lease is ready to serve the model.

        Raises:
            WaitTimeout: none was within `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                while not await self._patient(lambda: is_served(self.redis, model)):  # noqa: ASYNC110 - other hosts set it
                    await asyncio.sleep(READY_PAUSE_S)
        except TimeoutError:
            raise WaitTimeout(f"no worker for this model was ready within {timeout:g} s") from None

    def _known(self, handle: AnyHandle) -> Handle:
        return self.scope.known(as_handle(handle))

    async def _patient(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await patiently(attempt, self._patience_s)


def as_handle(handle: AnyHandle) -> Handle:
    """A handle from whatever names a job.

    Raises:
        InvalidId: the text is no handle, or it is of another type.
    """
    if isinstance(handle, Job):
        return handle.handle
    if isinstance(handle, Handle):
        return handle
    if not isinstance(handle, str):
        raise InvalidId(f"a handle is a text, a Handle or a Job, not of the type {type(handle).__name__}")
    return Handle.parse(handle)
