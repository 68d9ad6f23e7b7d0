"""Ten API keys hammer two processes that share their buckets, for a minute: how much of its limit did each key get?"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass

from bench import parts
from bench.report import Target, show
from producer.fleet import Fleet
from producer.gateway.auth import StoredKeys
from producer.jobs import Job
from producer.keys import create_key
from protocol.errors import RateLimited
from protocol.limits import Limits

PROCESSES = 2
PAUSE_S = 0.05
"""What a refused customer waits for, whatever it was told."""
ASKED_TOKENS = (5, 40, 200)
"""`max_tokens` of the jobs in turn; most of the longest ones end sooner, and give back what they did not use."""
CUSTOMERS = (
    *(Limits(requests_a_minute=rate) for rate in (10, 20, 40, 80, 160)),
    *(Limits(requests_a_minute=6_000, tokens_a_minute=rate, jobs=64) for rate in (1_000, 2_000, 4_000, 8_000, 16_000)),
)
"""The first five are held by their requests, the others by their tokens."""


@dataclass
class Got:
    """What one key got in one process. Times are the machine's, in seconds."""

    requests: int = 0
    refused: int = 0
    tokens: int = 0
    began_s: float = float("inf")
    ended_s: float = 0.0
    """When its first job that was taken was sent, and when it heard of the last one."""


def main() -> None:
    """Run the command; with --process, one of its processes."""
    parser = argparse.ArgumentParser(prog="make bench-buckets", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--process", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        found = asyncio.run(_hammer_all(options.process, json.loads(sys.stdin.readline()), options.seconds))
        print(json.dumps([asdict(got) for got in found]))
        return
    all_got = asyncio.run(_measure(options.seconds))
    show("bench-buckets", *_judge(all_got, options.seconds), as_json=options.json)


async def _measure(seconds: float) -> list[list[Got]]:
    """What each key got in each process."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(parts.valkey())
        stack.enter_context(parts.scheduler(url))
        stack.enter_context(parts.worker(url))
        fleet = await stack.enter_async_context(Fleet(url))
        await fleet.ready(parts.MODEL, 60)
        secrets = [(await create_key(fleet, limits=limits))[0] for limits in CUSTOMERS]
        readers = [await stack.enter_async_context(_process(url, secrets, seconds)) for _ in range(PROCESSES)]
        lines = await asyncio.gather(*(reader.readline() for reader in readers))
    return [[Got(**got) for got in json.loads(line)] for line in lines]


@asynccontextmanager
async def _process(url: str, secrets: Sequence[str], seconds: float) -> AsyncIterator[asyncio.StreamReader]:
    """One of the processes, as a gateway stands beside others; the keys go to it by stdin, what they got comes back."""
    command = [sys.executable, "-m", "bench.buckets", "--process", url, "--seconds", f"{seconds:g}"]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=2**24)
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("a process without pipes")
    try:
        child.stdin.write(json.dumps(secrets).encode() + b"\n")
        await child.stdin.drain()
        yield child.stdout
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


async def _hammer_all(url: str, secrets: Sequence[str], seconds: float) -> list[Got]:
    async with Fleet(url) as fleet:
        ring = StoredKeys(fleet.redis, fleet.settings.redis_patience_s)
        await asyncio.gather(*(ring.find(secret) for secret in secrets))
        return await asyncio.gather(*(_hammer(fleet, ring, secret, seconds) for secret in secrets))


async def _hammer(fleet: Fleet, ring: StoredKeys, secret: str, seconds: float) -> Got:
    """Submit as long as it is taken, and again after a moment where it is refused."""
    got, loop = Got(), asyncio.get_running_loop()
    ends_at, jobs = loop.time() + seconds, list[Job]()
    while loop.time() < ends_at:
        grant = await ring.find(secret)
        asked = ASKED_TOKENS[got.requests % len(ASKED_TOKENS)]
        sent_s = loop.time()
        try:
            what = f"say something about {got.requests} and {got.refused}"
            job = await fleet.submit(
                model=parts.MODEL, prompt=what, max_tokens=asked, bucket=grant.bucket if grant else None
            )
        except RateLimited:
            got.refused += 1
            await asyncio.sleep(PAUSE_S)
            continue
        got.requests += 1
        got.began_s, got.ended_s = min(got.began_s, sent_s), loop.time()
        jobs.append(job)
    # Not before: whoever waits takes time from the hammers.
    got.tokens = sum([(await job.result(60)).used_tokens or 0 for job in jobs])
    return got


def _judge(found: Sequence[Sequence[Got]], seconds: float) -> tuple[list[Target], dict[str, float]]:
    most, least, least_of_all = 0.0, float("inf"), float("inf")
    for limits, *shares in zip(CUSTOMERS, *found, strict=True):
        by_tokens = limits.tokens_a_minute > 0
        rate = limits.tokens_a_minute if by_tokens else limits.requests_a_minute
        got = sum(share.tokens if by_tokens else share.requests for share in shares)
        took_s = max(share.ended_s for share in shares) - min(share.began_s for share in shares)
        most = max(most, got / (rate + rate * took_s / 60))
        least = min(least, got / (rate * seconds / 60))
        least_of_all = min(least_of_all, got / (rate + rate * seconds / 60))
    refused = sum(share.refused for shares in found for share in shares)
    taken = sum(share.requests for shares in found for share in shares)
    targets = [
        Target("most any key got over its bucket plus one burst", most, 1.0, "lower"),
        Target("least any key got over its bucket", least, 0.95, "higher"),
        # The burst that all begin with hides nothing here.
        Target("least any key got over its bucket plus one burst", least_of_all, 0.95, "higher"),
    ]
    return targets, {
        "submits taken": taken,
        "submits refused": refused,
        "refused a second": refused / seconds,
    }


if __name__ == "__main__":
    main()
