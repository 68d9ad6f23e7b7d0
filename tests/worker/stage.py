"""A worker on a real server, an engine that says what the test says, and a dispatcher of a few lines."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from protocol import reads
from protocol.handle import Handle
from protocol.messages import InboxEntry, JobRecord, Outcome, WorkerRecord
from protocol.settings import Settings
from protocol.states import State
from protocol.wire import JsonObject
from tests.support.builders import SHARD
from tests.support.driver import Driver
from tests.support.waiting import eventually
from worker.engine.base import Capacity, EngineDead, EngineLoad, EngineRequest, SleepRefused
from worker.options import WorkerOptions
from worker.service import run_worker
from worker.session import Ending
from worker.stop import StopSignals

FAST = Settings(beat_s=0.05, frame_s=0.01, redis_patience_s=5, drain_s=20)


def word(text: str) -> JsonObject:
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}


END: JsonObject = {
    "id": "c",
    "object": "chat.completion.chunk",
    "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


@dataclass(eq=False)
class Flight:
    """One request on the engine."""

    request: EngineRequest
    _said: "asyncio.Queue[JsonObject | Exception]" = field(default_factory=asyncio.Queue)
    closed: bool = False

    def say(self, *texts: str) -> None:
        for text in texts:
            self._said.put_nowait(word(text))

    def pass_on(self, chunk: JsonObject) -> None:
        self._said.put_nowait(chunk)

    def end(self) -> None:
        self._said.put_nowait(END)

    def fail(self, error: Exception) -> None:
        self._said.put_nowait(error)

    async def chunks(self) -> AsyncGenerator[JsonObject, None]:
        try:
            while True:
                said = await self._said.get()
                if isinstance(said, Exception):
                    raise said
                yield said
                if said is END:
                    return
        finally:
            self.closed = True


class PuppetEngine:
    """Says what the test says, on flights that the test looks up by their job's own id."""

    def __init__(self, slots: int = 4, *, continues_chats: bool = False) -> None:
        self.slots = slots
        self.continues_chats = continues_chats
        self.counts: dict[int, int] = {}
        """Tokens of prompts, by how many messages they have."""
        self.words: dict[int, str] = {}
        """Texts of tokens; what is missing is a piece of a character."""
        self.starts = 0
        self.flights: list[Flight] = []
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.held_prefixes: frozenset[str] = frozenset()
        self.insomnia = ""
        self.asleep = False
        self.naps = 0
        self._dead: asyncio.Future[str] | None = None

    async def start(self) -> Capacity:
        await self.may_start.wait()
        self.starts += 1
        self._dead = asyncio.get_running_loop().create_future()
        return Capacity(self.slots, context_tokens=1000, kv_tokens=1000, continues_chats=self.continues_chats)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        flight = Flight(request)
        self.flights.append(flight)
        chunks = flight.chunks()
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    async def tokenize(self, request: EngineRequest) -> list[int]:
        return list(range(self.counts.get(len(request.body["messages"]), 0)))

    async def detokenize(self, request: EngineRequest, ids: Sequence[int]) -> str:
        del request
        return "".join(self.words.get(number, "\ufffd") for number in ids)

    async def load(self) -> EngineLoad:
        return EngineLoad(running=len(self.open()))

    def prefixes(self) -> frozenset[str]:
        return self.held_prefixes

    async def sleep(self) -> None:
        if self.insomnia:
            raise SleepRefused(self.insomnia)
        self.asleep = True
        self.naps += 1

    async def wake(self) -> None:
        self.asleep = False

    async def wait_dead(self) -> str:
        assert self._dead is not None
        return await asyncio.shield(self._dead)

    async def close(self) -> None:
        """Nothing to stop."""

    def open(self) -> list[Flight]:
        return [flight for flight in self.flights if not flight.closed]

    def die(self, *, telling: bool = True) -> None:
        """As a process that crashes; without `telling` the requests hang."""
        assert self._dead is not None
        self._dead.set_result("killed by the test")
        for flight in self.open() if telling else ():
            flight.fail(EngineDead("the engine died"))

    async def flight(self, own_id: str) -> Flight:
        """The open flight of a job, once there is one."""

        def find() -> Flight | None:
            found = [flight for flight in self.open() if f".{own_id}-" in flight.request.request_id]
            return found[-1] if found else None

        found = await eventually(find)
        assert found is not None
        return found


@dataclass
class Stage:
    """A running worker, seen from Redis."""

    driver: Driver
    engine: PuppetEngine
    stop: StopSignals
    task: "asyncio.Task[Ending]"

    async def worker(self, state: str = "active", but: str = "") -> WorkerRecord:
        """The worker once it is in this state; `but` names a life that does not count."""

        def find() -> WorkerRecord | None:
            leases = self.driver.run(reads.leases(SHARD))
            records = [self.driver.run(reads.worker_record(SHARD, name, lease)) for name, lease in leases.items()]
            return next((r for r in records if r and r.state == state and r.id != but and r.lease_ms), None)

        found = await eventually(find, timeout_s=20)
        assert found is not None
        return found

    async def assign(self, own_id: str = "a", **changes: Any) -> tuple[Handle, int]:
        """Submit a job and assign it to the worker."""
        worker = await self.worker()
        self.driver.lead()
        handle = self.driver.submit(own_id, **changes).handle
        attempt = self.driver.assign(handle, worker.id)
        assert isinstance(attempt, int), attempt
        return handle, attempt

    async def assign_again(self, handle: Handle) -> int:
        worker = await self.worker()
        await self.reaches(handle, State.QUEUED)
        attempt = self.driver.assign(handle, worker.id)
        assert isinstance(attempt, int), attempt
        return attempt

    async def begin(self, own_id: str = "a", **changes: Any) -> tuple[Handle, Flight]:
        """A job that is on the engine."""
        handle, _ = await self.assign(own_id, **changes)
        return handle, await self.engine.flight(own_id)

    async def reaches(self, handle: Handle, state: State) -> JobRecord:
        def there() -> JobRecord | None:
            self.driver.lead()
            job = self.driver.job(handle)
            return job if job.state is state else None

        job = await eventually(there, timeout_s=20)
        assert job is not None
        return job

    def outcome(self, handle: Handle) -> Outcome:
        found = self.driver.run(reads.outcome(handle))
        assert found is not None
        return found

    def inbox(self, worker: WorkerRecord) -> list[InboxEntry]:
        return self.driver.inbox(worker.id)

    def log_text(self, handle: Handle) -> str:
        return "".join(frame.text for frame in self.driver.log(handle))

    async def reclaim(self, worker: WorkerRecord) -> None:
        """Its lease ends now, and the dispatcher notices before any beat."""
        from protocol import keys
        from tests.support.builders import tick_as

        self.driver.lead()
        # A dispatcher's first tick is a gap: a worker that is not heard after it would not be to blame.
        record = keys.worker(SHARD, worker.id)

        def heard_since() -> bool:
            return self.driver.redis.hget(record, "at") != self.driver.redis.hget(record, "unheard")

        await eventually(heard_since)
        pipe = self.driver.redis.pipeline(transaction=True)
        pipe.zadd(keys.workers(SHARD), {worker.id: 1})
        pipe.execute_command(*tick_as().command)  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
        pipe.execute()


@asynccontextmanager
async def staged(
    url: str, engine: PuppetEngine | None = None, settings: Settings = FAST, *, standby: bool = False, slots: int = 0
) -> AsyncIterator[Stage]:
    """A worker for the length of a block; ended with two signals when the test has not ended it."""
    engine = engine or PuppetEngine()
    stop = StopSignals()
    options = WorkerOptions(engine, ("m",), pool=SHARD.pool, label="w", standby=standby, slots=slots)
    task = asyncio.create_task(run_worker(settings, options, redis_url=url, stop=stop))
    with Redis.from_url(url) as client:
        try:
            yield Stage(Driver(client), engine, stop, task)
        finally:
            stop.signal()
            stop.signal()
            await asyncio.wait([task], timeout=20)
            assert task.done()
        if not task.cancelled():
            task.exception()
