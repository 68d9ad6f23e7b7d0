"""Streams that a proxy cuts ten times, each resumed by `Last-Event-ID` on two gateways in turn: is the text whole?"""

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from difflib import SequenceMatcher

import aiohttp

from bench import parts
from bench.report import Target, show
from bench.resume.cuts import Cut, Kind
from bench.resume.reader import Stream
from producer.fleet import Fleet
from tokenfleet.up.ports import free_port

GATEWAYS = 2
CUTS = 10
TOKENS = 500
LONGEST_PIECE = 4
"""Events between two cuts, at most: the whole has about a hundred."""


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make resume-sse", description=__doc__)
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1, help="of the cuts")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    streams, wholes = asyncio.run(_measure(options.streams, random.Random(options.seed)))
    show("resume-sse", *_judge(streams, wholes), as_json=options.json)


async def _measure(count: int, chance: random.Random) -> tuple[list[Stream], list[str]]:
    """The streams as their clients read them, and the whole texts."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(parts.valkey())
        stack.enter_context(parts.scheduler(url))
        stack.enter_context(parts.process([sys.executable, "-m", "bench.resume.engine", url]))
        fleet = await stack.enter_async_context(Fleet(url))
        await fleet.ready(parts.MODEL, 60)
        ports = [free_port() for _ in range(GATEWAYS)]
        for port in ports:
            stack.enter_context(parts.process(parts.tokenfleet(url, "gateway", "--open", "--port", str(port))))
            await _ready(port)
        streams = [Stream(ports, _plan(chance), number, TOKENS) for number in range(count)]
        return streams, await asyncio.gather(*(stream.read() for stream in streams))


async def _ready(port: int) -> None:
    async with asyncio.timeout(60), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        while True:
            try:
                async with session.get("/ready") as answer:
                    if answer.ok:
                        return
            except aiohttp.ClientConnectionError:
                pass  # it does not listen yet
            await asyncio.sleep(0.1)


def _plan(chance: random.Random) -> list[Cut]:
    """Each kind at least once, in any order."""
    kinds = [*Kind, *chance.choices(list(Kind), k=CUTS - len(Kind))]
    chance.shuffle(kinds)
    return [Cut(kind, chance.randint(1, LONGEST_PIECE)) for kind in kinds]


def _judge(streams: Sequence[Stream], wholes: Sequence[str]) -> tuple[list[Target], dict[str, float]]:
    missing = doubled = 0
    for stream, whole in zip(streams, wholes, strict=True):
        there, read = whole.encode(), stream.text.encode()
        same = len(there) if there == read else _common(there, read)
        missing += len(there) - same
        doubled += len(read) - same
    made = Counter(cut.kind for stream in streams for cut in stream.made)
    targets = [
        Target("bytes of text missing", missing, 0, "lower"),
        Target("bytes of text doubled", doubled, 0, "lower"),
        Target("cuts made of those planned", made.total() / (CUTS * len(streams)), 1, "higher"),
    ]
    figures: dict[str, float] = {
        "streams": len(streams),
        "bytes of text": sum(len(whole.encode()) for whole in wholes),
        **{f"cuts {kind}": made[kind] for kind in Kind},
        "of them, with half an event at the client": sum(stream.half_events for stream in streams),
        "of them, with half a character": sum(stream.half_characters for stream in streams),
        "texts begun anew": sum(stream.restarts for stream in streams),
    }
    return targets, figures


def _common(one: bytes, other: bytes) -> int:
    """Bytes that both have, in the same order."""
    return sum(block.size for block in SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks())


if __name__ == "__main__":
    main()
