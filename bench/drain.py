"""Jobs a second through a queue that is full at the start: ours and arq's, on one server, in turns."""

import statistics
from dataclasses import dataclass

from arq import create_pool
from arq.connections import RedisSettings
from redis.asyncio import Redis

from bench import parts
from producer.fleet import Fleet
from producer.requests import JobRequest
from protocol import keys, library
from protocol.call import run
from protocol.functions import register
from protocol.handle import Shard
from protocol.messages import ModelRecord

SHARD = Shard(parts.MODEL)
ROUNDS = 3
OUR_JOBS = 6_000
ARQ_JOBS = {"Poll10ms": 4_000, "Defaults": 2_000}
BODY = {"model": parts.MODEL, "prompt": "nothing", "max_tokens": 1}


@dataclass(frozen=True, slots=True)
class Drain:
    """Medians over the rounds."""

    ours: float
    arq_poll_10ms: float
    arq_defaults: float
    submit_rate: float
    arq_enqueue_rate: float
    redis_us_a_job: float
    commands_a_job: float
    bare_rate: float
    bare_us_a_job: float


async def measure(url: str) -> Drain:
    """Run all sides `ROUNDS` times in turns."""
    redis = Redis.from_url(url)
    ours, bare = [], []
    arq: dict[str, list[tuple[float, float]]] = {name: [] for name in ARQ_JOBS}
    for _ in range(ROUNDS):
        ours.append(await _ours(url, redis))
        bare.append(await _bare(redis))
        for name, rates in arq.items():
            rates.append(await _arq(url, redis, name))
    await redis.aclose()
    median = statistics.median
    return Drain(
        ours=median(r[0] for r in ours),
        submit_rate=median(r[1] for r in ours),
        redis_us_a_job=median(r[2] for r in ours),
        commands_a_job=median(r[3] for r in ours),
        arq_poll_10ms=median(r[0] for r in arq["Poll10ms"]),
        arq_defaults=median(r[0] for r in arq["Defaults"]),
        arq_enqueue_rate=median(r[1] for r in arq["Poll10ms"]),
        bare_rate=median(r[0] for r in bare),
        bare_us_a_job=median(r[1] for r in bare),
    )


async def _cpu_and_commands(redis: Redis) -> tuple[float, int]:
    info = await redis.info()
    return info["used_cpu_user"] + info["used_cpu_sys"], info["total_commands_processed"]


async def _submit_all(url: str, count: int) -> None:
    async with Fleet(url) as fleet:
        requests = [JobRequest(model=parts.MODEL, body=BODY, endpoint="/v1/completions", priority="medium")] * count
        for job in await fleet.submit_many(requests):
            if isinstance(job, Exception):
                raise job


async def _ours(url: str, redis: Redis) -> tuple[float, float, float, float]:
    """Drain rate, submit rate, Redis CPU in µs and Redis commands for each job's whole life."""
    await redis.flushall()
    await library.load(redis)
    await run(redis, register(parts.MODEL, ModelRecord(pool=parts.MODEL)))
    cpu, commands = await _cpu_and_commands(redis)
    begin = await _now(redis)
    await _submit_all(url, OUR_JOBS)
    submit_s = await _now(redis) - begin
    with parts.scheduler(url), parts.worker(url):
        rate = await parts.drained(redis, keys.deadlines(SHARD), OUR_JOBS)
        cpu_after, commands_after = await _cpu_and_commands(redis)
    return (
        rate,
        OUR_JOBS / submit_s,
        (cpu_after - cpu) / OUR_JOBS * 1e6,
        (commands_after - commands) / OUR_JOBS,
    )


async def _arq(url: str, redis: Redis, settings: str) -> tuple[float, float]:
    """Drain rate and enqueue rate."""
    await redis.flushall()
    count = ARQ_JOBS[settings]
    pool = await create_pool(RedisSettings.from_dsn(url))
    begin = await _now(redis)
    for number in range(count):
        await pool.enqueue_job("nothing", number)
    rate = count / (await _now(redis) - begin)
    await pool.aclose()
    with parts.arq_worker(url, settings):
        return await parts.drained(redis, "arq:queue", count), rate


async def _bare(redis: Redis) -> tuple[float, float]:
    """The floor: pipelined ZADD, ZPOPMIN and SET of a result, with no promise kept; jobs/s and Redis µs a job."""
    await redis.flushall()
    cpu, _ = await _cpu_and_commands(redis)
    begin = await _now(redis)
    for first in range(0, OUR_JOBS, 100):
        pipe = redis.pipeline(transaction=False)
        for number in range(first, first + 100):
            pipe.zadd("bare", {f"{number}": number})
        await pipe.execute()
    for first in range(0, OUR_JOBS, 100):
        pipe = redis.pipeline(transaction=False)
        pipe.zpopmin("bare", 100)
        for number in range(first, first + 100):
            pipe.set(f"bare:{number}", b"{}", ex=3600)
        await pipe.execute()
    rate = OUR_JOBS / (await _now(redis) - begin)
    after, _ = await _cpu_and_commands(redis)
    return rate, (after - cpu) / OUR_JOBS * 1e6


async def _now(redis: Redis) -> float:
    seconds, micros = await redis.time()
    return float(seconds) + float(micros) / 1e6
