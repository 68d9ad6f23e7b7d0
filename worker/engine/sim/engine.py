"""The simulated engine in real time: sleeps as long as the step machine says, and streams what it emits."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from protocol.cost_model import PROFILES
from protocol.errors import SetupError
from protocol.wire import JsonObject
from worker.engine.base import Capacity, EngineDead, EngineLoad, EngineRequest, SleepRefused
from worker.engine.options import EngineOptions
from worker.engine.prefix_index import PrefixIndex
from worker.engine.sim.chunks import ChunkWriter, embeddings
from worker.engine.sim.core import SimCore
from worker.engine.sim.job import BYTES_PER_TOKEN, SimJob, read_job
from worker.engine.sim.records import Limits, SimRequest, Step
from worker.engine.sim.text import chained_hashes, word

DEFAULT_SLOTS = 256
DEFAULT_CONTEXT_TOKENS = 32_768


class Event(NamedTuple):
    """What happened to one choice in a step."""

    choice: int
    kind: Literal["token", "end", "dead"]


@dataclass(slots=True)
class _Stream:
    """One request's way from the stepping task to its reader."""

    job: SimJob
    events: "asyncio.Queue[Event]" = field(default_factory=asyncio.Queue)
    cached_tokens: int = 0


class SimEngine:
    """A simulated engine; equal bodies get equal texts."""

    def __init__(
        self,
        profile: str = "h100-8b",
        *,
        speed: float = 1.0,
        slots: int = DEFAULT_SLOTS,
        context_tokens: int = DEFAULT_CONTEXT_TOKENS,
        kv_tokens: int = 0,
        block_tokens: int = 16,
    ) -> None:
        """Set up without starting; `kv_tokens` 0 takes the profile's.

        Raises:
            SetupError: no such profile, or the speed is not positive.
        """
        if profile not in PROFILES or speed <= 0:
            msg = f"the simulated engine has no profile {profile!r} at speed {speed:g}"
            raise SetupError(msg, f"Profiles: {', '.join(PROFILES)}; the speed is above 0.")
        self._profile = PROFILES[profile]
        self._speed = speed
        kv_tokens = (kv_tokens or self._profile.kv_tokens) // block_tokens * block_tokens
        self._limits = Limits(kv_tokens, sequences=slots, block_tokens=block_tokens)
        # So that every request that is not refused fits the KV cache.
        self._capacity = Capacity(
            slots,
            min(context_tokens, kv_tokens),
            kv_tokens,
            block_tokens,
            step_tokens=self._limits.step_tokens,
            continues_chats=True,
        )
        self._index = PrefixIndex(block_tokens, kv_tokens)
        self._streams: dict[str, tuple[_Stream, int]] = {}
        self._stepping: asyncio.Task[None] | None = None
        self._sums: Counter[str] = Counter()

    async def start(self) -> Capacity:
        """Begin with an empty cache."""
        await self.close()
        self._empty()
        self._sums.clear()
        self._work, self._awake = asyncio.Event(), asyncio.Event()
        self._awake.set()
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stepping = asyncio.create_task(self._step_for_ever(), name="sim-engine")
        return self._capacity

    async def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        """Run one request; see `Engine.generate`."""
        if self._stepping is None:
            raise EngineDead("the simulated engine is down")
        job = read_job(request, self._capacity.context_tokens)
        model = str(request.body.get("model") or "sim")
        writer = ChunkWriter(request.endpoint, request.request_id, model, int(time.time()))
        if self._profile.instant:
            self._sums["generated_tokens"] += sum(answer.tokens for answer in job.answers)
            yield writer.whole(job) if job.answers else embeddings(request, job, model)
            return
        stream = self._open(request.request_id, job)
        try:
            told = [0] * len(job.answers)
            left = len(job.answers) or 1
            while left:
                event = await stream.events.get()
                if event.kind == "dead":
                    raise EngineDead("the simulated engine crashed")
                if not any(told):
                    self._index.assumed(request.prefix, job.prompt_tokens)
                left -= event.kind == "end"
                for chunk in _chunks(writer, job, event, told):
                    yield chunk
            yield writer.usage(job, stream.cached_tokens) if told else embeddings(request, job, model)
        finally:
            self._close(request.request_id, job)

    async def tokenize(self, request: EngineRequest) -> list[int]:
        """Not told: its chunks are tokens, and counted as they come."""
        del request
        return []

    async def detokenize(self, request: EngineRequest, ids: Sequence[int]) -> str:
        """Not told either."""
        del request, ids
        return ""

    async def load(self) -> EngineLoad:
        """Exact; it has no process of its own, so no resident memory."""
        if self._stepping is None:
            return EngineLoad()
        core = self._core
        return EngineLoad(core.running, core.waiting, core.kv_used_tokens, **self._sums)

    def prefixes(self) -> frozenset[str]:
        """The last prompts that its cache has room for: it goes by hashes of its own, so this is an estimate."""
        return self._index.hashes()

    async def sleep(self) -> None:
        """Forget the cache and stop stepping: a request that comes now waits until `wake`."""
        if self._stepping is None:
            raise EngineDead("the simulated engine is down", reached=False)
        if self._core.busy:
            raise SleepRefused("requests are running")
        self._empty()
        self._awake.clear()

    async def wake(self) -> None:
        """Step again."""
        if self._stepping is None:
            raise EngineDead("the simulated engine is down", reached=False)
        self._awake.set()

    async def wait_dead(self) -> str:
        """Return once `crash` was called."""
        return await asyncio.shield(self._dead)

    async def crash(self) -> None:
        """Die as an engine process does: all that runs fails, and `start` must be called again."""
        await self.close()
        if not self._dead.done():
            self._dead.set_result("crashed on demand")

    async def close(self) -> None:
        """Stop stepping; whatever still runs ends with `EngineDead`."""
        if self._stepping is not None:
            self._stepping.cancel()
            with suppress(asyncio.CancelledError):
                await self._stepping
            self._stepping = None
        for stream, index in self._streams.values():
            stream.events.put_nowait(Event(index, "dead"))
        self._streams.clear()

    def _empty(self) -> None:
        self._core = SimCore(self._profile, self._limits)
        self._index.cleared()

    def _open(self, request_id: str, job: SimJob) -> _Stream:
        stream = _Stream(job)
        chain = chained_hashes(job.content, self._limits.block_tokens * BYTES_PER_TOKEN)
        blocks = chain[: job.prompt_tokens // self._limits.block_tokens]
        for index, tokens in enumerate([answer.tokens for answer in job.answers] or [0]):
            name = f"{request_id}#{index}"
            self._core.add(SimRequest(name, job.prompt_tokens, tokens, blocks))
            self._streams[name] = stream, index
        self._work.set()
        return stream

    def _close(self, request_id: str, job: SimJob) -> None:
        for index in range(len(job.answers) or 1):
            if self._streams.pop(f"{request_id}#{index}", None):
                self._core.abort(f"{request_id}#{index}")

    async def _step_for_ever(self) -> None:
        """Keep to the virtual clock: what one sleep lasts too long, the next lasts less."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        while True:
            if not self._core.busy:
                self._work.clear()
                await self._work.wait()
                await self._awake.wait()
                now_s = loop.time()
            step = self._core.step(now_s * 1000)
            now_s += step.duration_ms / 1000 / self._speed
            await asyncio.sleep(now_s - loop.time())
            self._deliver(step)

    def _deliver(self, step: Step) -> None:
        self._sums["preemptions"] += len(step.preempted)
        for name, cached_tokens in step.admitted.items():
            if name in self._streams:
                stream, _ = self._streams[name]
                self._sums["prompt_tokens"] += stream.job.prompt_tokens
                self._sums["prefix_query_tokens"] += stream.job.prompt_tokens
                self._sums["prefix_hit_tokens"] += cached_tokens
                stream.cached_tokens = max(stream.cached_tokens, cached_tokens)
        for name in step.emitted:
            if name in self._streams:
                stream, index = self._streams[name]
                self._sums["generated_tokens"] += bool(stream.job.answers)
                stream.events.put_nowait(Event(index, "token"))
        for name in step.finished:
            if name in self._streams:
                stream, index = self._streams.pop(name)
                stream.events.put_nowait(Event(index, "end"))


def _chunks(writer: ChunkWriter, job: SimJob, event: Event, told: list[int]) -> list[JsonObject]:
    """What the reader sees of an event; `told` counts the tokens of each choice that it has seen."""
    index = event.choice
    if not job.answers:
        return []
    answer = job.answers[index]
    if event.kind == "end":
        return [writer.end(index, answer.finish_reason)]
    position = told[index]
    told[index] += 1
    begin = [] if position else writer.role(index)
    return [*begin, writer.token(index, word(answer.seed, answer.position + position))]


def from_options(options: EngineOptions) -> SimEngine:
    """Build it from a worker's settings.

    Raises:
        SetupError: no such profile, or the speed is not positive.
    """
    return SimEngine(
        options.profile,
        speed=options.speed,
        slots=options.slots or DEFAULT_SLOTS,
        context_tokens=options.context_tokens or DEFAULT_CONTEXT_TOKENS,
        kv_tokens=options.kv_tokens,
    )
