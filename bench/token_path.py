"""Tokens a second from the worker's outbox through log and channel, beside bare pipelined PUBLISH."""

import asyncio
import statistics
from dataclasses import dataclass

from redis.asyncio import Redis

from protocol import functions, library, store, wire
from protocol.call import run, run_all, value_of
from protocol.functions import Beat, Move, Submission, TickTimes
from protocol.handle import Handle, Shard
from protocol.messages import JobSpec, LoadReport
from protocol.states import Priority
from protocol.wire import JsonObject
from worker.outbox import Outbox
from worker.outgoing import Outgoing

STREAMS = 16
STEPS = 1_000
"""Engine steps: each gives every stream one token."""
ROUNDS = 3
GATHERED = 4
SHARD = Shard("tokens")
WORKER = "w"
LIMITS = dict.fromkeys(Priority, 1_000)
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class TokenPath:
    """Tokens a second, medians over the rounds."""

    each: float
    """One frame a token."""
    gathered: float
    """Four tokens a frame."""
    bare: float


async def measure(url: str) -> TokenPath:
    """Run all sides in turns."""
    redis = store.connect(url)
    each, gathered, bare = [], [], []
    for _ in range(ROUNDS):
        bare.append(await _bare(redis))
        each.append(await _ours(redis, 1))
        gathered.append(await _ours(redis, GATHERED))
    await redis.aclose()
    return TokenPath(statistics.median(each), statistics.median(gathered), statistics.median(bare))


def _chunk(step: int) -> JsonObject:
    """What a chat engine sends for one token."""
    choice = {"index": 0, "delta": {"content": f" token{step}"}, "finish_reason": None}
    head = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1_700_000_000}
    return head | {"model": "tokens", "choices": [choice]}


async def _bare(redis: Redis) -> float:
    begin = asyncio.get_running_loop().time()
    for step in range(STEPS):
        pipe = redis.pipeline(transaction=False)
        for stream in range(STREAMS):
            pipe.publish(f"bare:{stream}", wire.dumps([_chunk(step)]))
        await pipe.execute()
    return STEPS * STREAMS / (asyncio.get_running_loop().time() - begin)


async def _ours(redis: Redis, tokens_a_frame: int) -> float:
    outs = await _running_jobs(redis)
    outbox = Outbox(redis, 0, lambda _: None)
    writing = asyncio.create_task(outbox.run())
    begin = asyncio.get_running_loop().time()
    for step in range(STEPS):
        full = (step + 1) % tokens_a_frame == 0
        for out in outs:
            outbox.say(out, _chunk(step))
        # An engine's next step comes when the last one has gone out, as in the bare loop.
        while full and any(out.unanswered or out.gathering for out in outs):  # noqa: ASYNC110 - paces a bare loop
            await asyncio.sleep(0)
    seconds = asyncio.get_running_loop().time() - begin
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    return STEPS * STREAMS / seconds


async def _running_jobs(redis: Redis) -> list[Outgoing]:
    """Streaming jobs that a worker has started."""
    await redis.flushall()
    await library.load(redis)
    handles = [Handle(SHARD, "bench", f"job{number}") for number in range(STREAMS)]
    await run(redis, functions.tick(SHARD, "leader", TickTimes(), LIMITS))
    await run(redis, functions.beat(SHARD, Beat(WORKER, "w", "active", STREAMS, HOUR_MS, LoadReport(), join=True)))
    spec = JobSpec(model="tokens", endpoint="/v1/chat/completions", stream=True)
    for handle in handles:
        job = Submission(handle, Priority.HIGH, spec, b"{}", "digest", "nonce", HOUR_MS, HOUR_MS)
        await run(redis, functions.submit(job))
    moves = [Move(f"{number + 1:016d}:{handle.ref}", WORKER) for number, handle in enumerate(handles)]
    attempts = [int(answer) for answer in await run(redis, functions.assign(SHARD, "leader", moves)) or ()]
    starts = [functions.start(handle, n, WORKER) for handle, n in zip(handles, attempts, strict=True)]
    for reply in await run_all(redis, starts):
        value_of(reply)
    return [Outgoing(handle, attempt, WORKER) for handle, attempt in zip(handles, attempts, strict=True)]
