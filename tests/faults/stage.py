"""What every fault is played on: a server of its own, roles as real processes, and a client that looks on."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from producer.events import Restart, Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from protocol import keys, reads
from protocol.call import Call, run
from protocol.functions import register
from protocol.handle import Shard
from protocol.messages import JobRecord, ModelRecord, Outcome, WorkerRecord
from protocol.settings import Settings
from protocol.states import State
from protocol.wire import loads
from tests.support.nursery import Nursery
from tests.support.proxy import Proxy
from tests.support.servers import REQUIRE_REDIS7, Server, redis7_binary, redis7_is_required, valkey_binary
from tests.support.waiting import eventually


class NotHere(Exception):
    """This machine lacks what the scenario needs."""


MODEL = "m"
LEASE_S, LEAD_S, TICK_S = 2.0, 1.5, 0.3
RERUN_S = LEASE_S + 2.0
"""From a worker's death to the next attempt's first frame, at most."""
TAKEOVER_S = 3.0
RESUME_S = 5.0
TIMES = {
    "TOKENFLEET_LEASE_S": str(LEASE_S),
    "TOKENFLEET_BEAT_S": "0.1",
    "TOKENFLEET_LEAD_S": str(LEAD_S),
    "TOKENFLEET_TICK_S": str(TICK_S),
    "TOKENFLEET_LOG_FORMAT": "json",
    "TOKENFLEET_LOG_LEVEL": "debug",
    "TOKENFLEET_DRAIN_S": "1",
}
WORDS_A_STREAM = 150
"""At the simulated engine's speed here about a second and a half."""


def now() -> float:
    """The loop's clock, in seconds."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True)
class Role:
    """One process of ours."""

    name: str
    pid: int
    log: Path
    nursery: Nursery

    @property
    def code(self) -> int | None:
        """Its exit code; None while it lives."""
        return self.nursery.code(self.pid)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def tell(self) -> None:
        """Ask it to end: a worker drains, and stops at once when told twice."""
        os.kill(self.pid, signal.SIGTERM)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def says(self, word: str) -> bool:
        """Whether its log has a line with this word."""
        return self.log.exists() and word in self.log.read_text()

    def said_at(self, word: str) -> float:
        """When its log had the first line with this word, in seconds of the wall clock."""
        line = next(line for line in self.log.read_text().splitlines() if word in line)
        return datetime.fromisoformat(loads(line)["timestamp"]).timestamp()

    async def dies(self, timeout_s: float = 30) -> float:
        """Wait for its end; the loop's time then."""
        await eventually(lambda: self.code is not None, timeout_s)
        return now()


class Stage:
    """Use it as an async context; all that it started ends with it.

    Attributes:
        binary: of its server.
        server: the Redis or Valkey of this stage, with an append-only file.
        fleet: a client with a patience of 20 s.
        roles: all processes that it started, also those that have ended.
    """

    def __init__(self, nursery: Nursery, folder: Path, kind: str = "valkey", extra: Sequence[str] = ()) -> None:
        """Start nothing yet; `kind` is `valkey` or `redis7`, `extra` are flags of the server's.

        Raises:
            NotHere: there is no Redis 7, and nobody asked for a failure then.
        """
        self._nursery, self.folder = nursery, folder
        self.binary = _binary(kind)
        self.server = Server(self.binary, folder, append_only=True, extra=extra)
        self.roles: list[Role] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.server.start()
        self.server.load_library()
        self.fleet = await self.client()
        # Otherwise the scheduler finds the pool with its second look, a second after its first.
        await run(self.fleet.redis, register(MODEL, ModelRecord(pool=MODEL)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        for role in self.roles:
            if role.code is None:
                role.kill()
        for role in self.roles:
            await role.dies()
        self.server.stop()

    async def client(self, url: str = "", patience_s: float = 20) -> Fleet:
        """One more client, closed at the end."""
        settings = Settings(redis_url=url or self.server.url, redis_patience_s=patience_s)
        return await self._stack.enter_async_context(Fleet(settings=settings))

    async def proxy(self, host: str = "127.0.0.1") -> Proxy:
        """A proxy before the server, ended at the end."""
        return await self._stack.enter_async_context(Proxy(self.server.port, host))

    def closing(self, close: Callable[[], Awaitable[object]]) -> None:
        """Awaited when the stage is left."""
        self._stack.push_async_callback(close)

    def at_the_end(self, undo: Callable[[], object]) -> None:
        """Called when the stage is left."""
        self._stack.callback(undo)

    def role(
        self,
        name: str,
        *args: str,
        url: str = "",
        failpoints: str = "",
        shift_s: float = 0,
        namespace: str = "",
        env: dict[str, str] | None = None,
    ) -> Role:
        """Start a process; `args` as `Nursery.fork` takes them."""
        log = self.folder / f"{name}-{len(self.roles)}.log"
        own = TIMES | {"TOKENFLEET_REDIS_URL": url or self.server.url, "TOKENFLEET_FAILPOINTS": failpoints}
        pid = self._nursery.fork(args, own | (env or {}), log, shift_s=shift_s, namespace=namespace)
        role = Role(name, pid, log, self._nursery)
        self.roles.append(role)
        return role

    def scheduler(self, **how: Any) -> Role:
        """`how` as `role` takes it."""
        return self.role("scheduler", "scheduler", **how)

    def worker(self, label: str = "w1", *, slots: int = 8, speed: float = 1.0, **how: Any) -> Role:
        """One on the simulated engine; `how` as `role` takes it."""
        engine = ("--engine", "sim", "--sim-speed", str(speed))
        return self.worker_on(engine, label, slots=slots, **how)

    def worker_on(self, engine: Sequence[str], label: str = "w1", *, slots: int = 8, **how: Any) -> Role:
        """One on the engine that these options name."""
        who = ("--model", MODEL, "--label", label, "--slots", str(slots))
        return self.role(label, "worker", *who, *engine, **how)

    async def crew(self, workers: int = 1) -> list[Role]:
        """A scheduler and workers, ready to serve; the scheduler comes first."""
        roles = [self.scheduler(), *(self.worker(f"w{number + 1}") for number in range(workers))]
        await self.active(workers)
        return roles

    async def active(self, count: int = 1, timeout_s: float = 15) -> None:
        """Wait until so many workers take jobs, and were heard after the gap that a scheduler's first tick is."""

        async def enough() -> bool:
            # Before its first tick nobody knows of a gap.
            scheduled = any(role.name == "scheduler" and role.code is None for role in self.roles)
            if scheduled and not await run(self.fleet.redis, Call(("EXISTS", keys.leader(Shard(MODEL))), bool)):
                return False
            return sum([await self._is_heard(worker) for worker in await self.workers()]) >= count

        await eventually(enough, timeout_s)

    async def _is_heard(self, worker: WorkerRecord) -> bool:
        key = keys.worker(Shard(MODEL), worker.id)
        at, unheard = await run(self.fleet.redis, Call(("HMGET", key, "at", "unheard"), list))
        return worker.state == "active" and at != unheard

    async def workers(self) -> list[WorkerRecord]:
        """Those that hold a lease in Redis's books."""
        leases = await run(self.fleet.redis, reads.leases(Shard(MODEL)))
        records = [
            await run(self.fleet.redis, reads.worker_record(Shard(MODEL), worker, lease))
            for worker, lease in leases.items()
        ]
        return [record for record in records if record]

    async def submit(self, own_id: str = "", *, words: int = WORDS_A_STREAM, **how: Any) -> Job:
        """A streaming job of so many words."""
        stream: dict[str, Any] = {
            "model": MODEL,
            "prompt": f"job {own_id}",
            "stream": True,
            "max_tokens": words,
            "ignore_eos": True,
        }
        return await self.fleet.submit(id=own_id, **(stream | how))

    async def spoken(self, job: Job, timeout_s: float = 15) -> None:
        """Wait until it has said something, whatever became of it since."""

        async def has() -> bool:
            return bool((await job.info()).record.first_token_ms)

        await eventually(has, timeout_s)

    async def running(self, job: Job, timeout_s: float = 15) -> JobRecord:
        """Wait until it has said something; its record then."""

        async def speaks() -> JobRecord | None:
            record = (await job.info()).record
            assert not record.state.terminal, f"it is {record.state} already"
            return record if record.state is State.RUNNING and record.first_token_ms else None

        found = await eventually(speaks, timeout_s)
        assert found
        return found


def _binary(kind: str) -> Path:
    if kind == "valkey":
        return valkey_binary()
    found = redis7_binary()
    if found is None and not redis7_is_required():
        raise NotHere("no redis-server of version 7 or above on the path")
    assert found, f"{REQUIRE_REDIS7} is set, but there is no redis-server of version 7 or above"
    return found


@dataclass(frozen=True)
class Reading:
    """What a follower ended up with."""

    text: str
    restarts: int
    ids: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """No frame came twice, and none before one that is older."""
        numbers = [tuple(map(int, frame.split("-"))) for frame in self.ids]
        return numbers == sorted(set(numbers))


async def read(fleet: Fleet, job: Job) -> Reading:
    """Follow a job to its end; a restart empties what was read, as users do."""
    text, restarts = "", 0
    ids: list[str] = []
    async for event in fleet.follow(job):
        if isinstance(event, Restart):
            text, restarts = "", restarts + 1
            ids.clear()
        elif isinstance(event, Tokens):
            text += event.text
            ids.append(event.id)
    return Reading(text, restarts, tuple(ids))


async def undisturbed(job: Job, reading: "asyncio.Task[Reading]", timeout_s: float = 30) -> Outcome:
    """Wait for the end; the follower must have the stored text, each frame once and in order."""
    outcome = await job.result(timeout=timeout_s)
    assert outcome.state is State.COMPLETED, f"it is {outcome.state}: {outcome.error}"
    seen = await reading
    assert seen.text == outcome.text, "the follower's text is not the stored one"
    assert seen.whole, f"frames came twice or out of order: {seen.ids}"
    return outcome
