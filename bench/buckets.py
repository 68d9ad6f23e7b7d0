"""Ten API keys hammer two gateways that share their buckets, for a minute: how much of its limit did each key get?"""

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import floor

import aiohttp

from bench import parts
from bench.report import Target, show
from producer.fleet import Fleet
from producer.keys import create_key
from protocol.limits import Limits
from tokenfleet.up.ports import free_port

GATEWAYS = 2
HAMMERS = 4
"""Requests that each key has in flight at each gateway."""
PAUSE_S = 0.2
"""What a refused customer waits for, whatever it was told."""
ASKED_TOKENS = (5, 40, 200)
"""`max_tokens` of the jobs in turn; most of the longest ones end sooner, and give back what they did not use."""
CUSTOMERS = (
    *(Limits(requests_a_minute=rate) for rate in (10, 20, 30, 40, 60)),
    *(
        Limits(requests_a_minute=6_000, tokens_a_minute=rate, jobs=64)
        for rate in (8_000, 12_000, 16_000, 24_000, 32_000)
    ),
)
"""The first five are held by their requests, the others by so many tokens that what one job leaves is little."""


@dataclass
class Got:
    """What one hammer got. Times are the machine's, in seconds."""

    requests: int = 0
    refused: int = 0
    tokens: int = 0
    began_s: float = float("inf")
    ended_s: float = 0.0
    """When its first request that was taken was sent, and when the last one was answered."""
    asked_s: float = 0.0
    """When it asked for the last time."""


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make bench-buckets", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    found = asyncio.run(_measure(options.seconds))
    show("bench-buckets", *judge(found, options.seconds), as_json=options.json)


async def _measure(seconds: float) -> list[list[Got]]:
    """What each key got, by each of its hammers."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(parts.valkey())
        stack.enter_context(parts.scheduler(url))
        stack.enter_context(parts.worker(url))
        fleet = await stack.enter_async_context(Fleet(url))
        await fleet.ready(parts.MODEL, 60)
        keys = [(await create_key(fleet, limits=limits))[0] for limits in CUSTOMERS]
        ports = [free_port() for _ in range(GATEWAYS)]
        for port in ports:
            stack.enter_context(parts.process(parts.tokenfleet(url, "gateway", "--port", str(port))))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        for port in ports:
            await _ready(session, port)
        hammers = [port for port in ports for _ in range(HAMMERS)]
        asked = ([_hammer(session, port, key, seconds) for port in hammers] for key in keys)
        return list(await asyncio.gather(*(asyncio.gather(*group) for group in asked)))


async def _ready(session: aiohttp.ClientSession, port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass  # it does not listen yet
            await asyncio.sleep(0.1)


async def _hammer(session: aiohttp.ClientSession, port: int, key: str, seconds: float) -> Got:
    """Ask as soon as the last answer is there, and again after a moment where it is refused."""
    got, loop = Got(), asyncio.get_running_loop()
    ends_at, headers = loop.time() + seconds, {"authorization": f"Bearer {key}"}
    while loop.time() < ends_at:
        body = {
            "model": parts.MODEL,
            "prompt": f"say something about {got.requests} and {got.refused}",
            "max_tokens": ASKED_TOKENS[got.requests % len(ASKED_TOKENS)],
        }
        got.asked_s = sent_s = loop.time()
        async with session.post(f"http://127.0.0.1:{port}/v1/completions", json=body, headers=headers) as answer:
            if answer.status == 429:
                got.refused += 1
                await asyncio.sleep(PAUSE_S)
                continue
            answer.raise_for_status()
            got.tokens += (await answer.json())["usage"]["total_tokens"]
        got.requests += 1
        got.began_s, got.ended_s = min(got.began_s, sent_s), loop.time()
    return got


def judge(found: Sequence[Sequence[Got]], seconds: float) -> tuple[list[Target], dict[str, float]]:
    """The figures, from what each key got by each of its hammers."""
    most, least, least_of_all = 0.0, float("inf"), float("inf")
    for limits, shares in zip(CUSTOMERS, found, strict=True):
        by_tokens = limits.tokens_a_minute > 0
        # A bucket begins full, with a minute's worth: that is the burst.
        rate = limits.tokens_a_minute if by_tokens else limits.requests_a_minute
        got = sum(share.tokens if by_tokens else share.requests for share in shares)
        began_s = min(share.began_s for share in shares)
        most = max(most, got / (rate + rate * (max(share.ended_s for share in shares) - began_s) / 60))
        refilled = rate * (max(share.asked_s for share in shares) - began_s) / 60
        # There are only whole requests; in a short run, none.
        if room := refilled if by_tokens else floor(refilled):
            least = min(least, (got - rate) / room)
        least_of_all = min(least_of_all, got / (rate * seconds / 60))
    refused = sum(share.refused for shares in found for share in shares)
    taken = sum(share.requests for shares in found for share in shares)
    targets = [
        Target("most any key got over its bucket plus one burst", most, 1.0, "lower"),
        # Without the burst that it begins with, which alone would be as much as the bucket brings in the whole minute.
        Target("least any key got over its bucket, its burst apart", least, 0.95, "higher"),
    ]
    return targets, {
        "least any key got over its bucket, its burst too": least_of_all,
        "requests taken": taken,
        "requests refused": refused,
        "refused a second": refused / seconds,
    }


if __name__ == "__main__":
    main()
