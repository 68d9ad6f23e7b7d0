"""From submit to start at a steady rate with a free worker."""

import asyncio
import statistics
import time

from redis.asyncio import Redis

from bench import parts
from bench.drain import BODY
from producer.fleet import Fleet
from protocol import reads
from protocol.call import run

RATE = 200
SECONDS = 5
WARM_UP = 100


async def measure(url: str) -> tuple[float, float, float]:
    """p50 and p99 in ms from before the submit call to the start that Redis recorded; and the bare floor's p50."""
    redis = Redis.from_url(url)
    await redis.flushall()
    with parts.scheduler(url), parts.worker(url):
        async with Fleet(url) as fleet:
            await fleet.ready(parts.MODEL, timeout=20)
            await _answered(fleet)  # the scheduler has found the new pool
            waits = sorted((await _waits(fleet, redis))[WARM_UP:])
    floor = await _floor(redis)
    await redis.aclose()
    return statistics.median(waits), waits[int(len(waits) * 0.99)], floor


async def _answered(fleet: Fleet) -> None:
    job = await fleet.submit(model=parts.MODEL, body=BODY, endpoint="/v1/completions")
    await job.result(timeout=20)


async def _waits(fleet: Fleet, redis: Redis) -> list[float]:
    loop, waits = asyncio.get_running_loop(), []
    begin = loop.time()
    sent = []
    for number in range(RATE * SECONDS):
        await asyncio.sleep(max(0.0, begin + number / RATE - loop.time()))
        before = time.time()  # the same machine's clock as Redis's
        job = await fleet.submit(model=parts.MODEL, body=BODY, endpoint="/v1/completions", priority="high")
        sent.append((before, job))
    for before, job in sent:
        await job.result(timeout=10)
        record = await run(redis, reads.job_record(job.handle))
        if record:
            waits.append(record.started_ms - before * 1000)
    return waits


async def _floor(redis: Redis) -> float:
    """p50 in ms of one XADD seen by a blocked XREAD on another connection."""
    loop, last = asyncio.get_running_loop(), "0"
    waits: list[float] = []

    async def read() -> str:
        ((_, entries),) = await redis.xread({"bare": last}, block=1000)
        waits.append((loop.time() - begin) * 1000)
        newest: str = entries[-1][0]
        return newest

    for _ in range(200):
        reading = asyncio.create_task(read())
        await asyncio.sleep(0.002)  # until the read blocks
        begin = loop.time()
        await redis.xadd("bare", {"a": "b"})
        last = await reading
    return statistics.median(waits)
