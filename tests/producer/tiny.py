"""A dispatcher and a worker in one small loop, on the protocol's own calls."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from redis.asyncio import Redis

from protocol import reads, watch, wire
from protocol.call import Call, T, patiently, run
from protocol.functions import Finished, Move, TickTimes, assign, emit, finish, register, requeue, start, wake
from protocol.handle import Handle, Shard
from protocol.messages import ErrorInfo, ModelRecord, Outcome, Started
from protocol.states import Priority, State
from protocol.wire import JsonObject
from tests.support.builders import BOSS, SHARD, join_worker, tick_as

MODEL = "m"
CONTEXT_TOKENS = 4_096
PATIENT = TickTimes(lead_ms=600_000, lease_ms=600_000)
"""The worker beats once, and is heard for as long as any test may take on a busy machine."""


def text_chunk(text: str) -> JsonObject:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}


def response(text: str, tokens: int) -> JsonObject:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": tokens + 3}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": MODEL, "choices": choices, "usage": usage}


@dataclass
class Attempt:
    """One job in the worker's hands."""

    worker: "TinyWorker"
    handle: Handle
    number: int
    started: Started
    frames: int = 0
    said: list[str] = field(default_factory=list)

    @property
    def prompt(self) -> str:
        body = wire.loads(self.started.body)
        return str(body["messages"][-1]["content"] if "messages" in body else body["prompt"])

    async def say(self, *texts: str) -> None:
        """One frame for each text, as for a streaming job."""
        for text in texts:
            self.frames += 1
            self.said.append(text)
            call = emit(self.handle, self.number, self.worker.name, self.frames, [text_chunk(text)])
            assert await self._run(call) == self.frames

    async def finish(self, text: str | None = None) -> None:
        text = "".join(self.said) if text is None else text
        body = response(text, len(text.split()))
        await self.end(Outcome(state=State.COMPLETED, status_code=200, body=body))

    async def refuse(self, status_code: int) -> None:
        """As an engine that answers 4xx."""
        body = {"error": {"message": "no", "code": "refused"}}
        await self.end(Outcome(state=State.FAILED, status_code=status_code, body=body))

    async def fail(self, code: str) -> None:
        await self.end(Outcome(state=State.FAILED, error=ErrorInfo(code=code, message="it broke")))

    async def end(self, outcome: Outcome) -> None:
        ended = Finished(self.handle, self.number, self.worker.name, self.frames, outcome, first_token_after_ms=1)
        assert (await self._run(finish(ended))).accepted

    async def _run(self, call: Call[T]) -> T:
        return await patiently(lambda: run(self.worker.redis, call), 10)

    async def give_back(self) -> None:
        assert await run(self.worker.redis, requeue(self.handle, self.number, self.worker.name)) == "ok"

    async def strike(self) -> None:
        """Its engine dies under it; after the third time the job is set aside."""
        assert await run(self.worker.redis, requeue(self.handle, self.number, self.worker.name, "strike")) != "stale"

    async def echo(self) -> None:
        """Say the prompt's words one by one when the job streams; end as the prompt asks, or with the prompt."""
        match self.prompt.split():
            case ["refuse", code]:
                await self.refuse(int(code))
            case ["fail", code]:
                await self.fail(code)
            case words:
                if self.started.spec.stream:
                    await self.say(*(f"{word} " for word in words))
                await self.finish("".join(f"{word} " for word in words))


@dataclass
class TinyWorker:
    """Joins a shard; `take` assigns and starts what is queued."""

    redis: Redis
    shard: Shard = SHARD
    name: str = "w1"
    slots: int = 64
    turns: int = 0

    async def join(self, models: Sequence[str] = (MODEL,)) -> None:
        record = ModelRecord(pool=self.shard.pool, context_tokens=CONTEXT_TOKENS)
        for model in models:
            assert await run(self.redis, register(model, record)) == ""
        await run(self.redis, join_worker(self.name, self.slots, shard=self.shard, lease_ms=PATIENT.lease_ms))

    async def take(self) -> list[Attempt]:
        await run(self.redis, tick_as(BOSS, shard=self.shard, times=PATIENT))
        await run(self.redis, wake(self.shard, BOSS))
        moves = [
            Move(entry.member, self.name)
            for priority in Priority
            for entry in await run(self.redis, reads.lane_head(self.shard, priority, self.slots))
        ]
        moved = await run(self.redis, assign(self.shard, BOSS, moves)) if moves else []
        assert moved is not None
        taken = [(str(move.member).partition(":")[2], n) for move, n in zip(moves, moved, strict=True)]
        return [await self._start(Handle.of(self.shard, ref), n) for ref, n in taken if isinstance(n, int)]

    async def take_one(self) -> Attempt:
        (attempt,) = await self.take()
        return attempt

    async def _start(self, handle: Handle, number: int) -> Attempt:
        started = await run(self.redis, start(handle, number, self.name))
        assert started is not None
        return Attempt(self, handle, number, started)

    async def serve(self) -> None:
        """Echo every job until cancelled."""
        while True:
            for attempt in await self.take():
                await attempt.echo()
            self.turns += 1
            await run(self.redis, watch.hint(self.shard, 20))


@asynccontextmanager
async def serving(worker: TinyWorker) -> AsyncIterator[TinyWorker]:
    """A joined worker that echoes everything for the length of a block."""
    await worker.join()
    task = asyncio.create_task(worker.serve())
    try:
        yield worker
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
