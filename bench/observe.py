"""What it costs to be watched: CPU time of scheduler and worker for a job and for a token, all of it on against off.

Both sides run the same load at the same time, on fleets and servers of their own: whatever else this machine does hits
both alike, and a round's ratio says more than its figures. While it is on, each role serves its metrics, and they are
scraped at the begin and every 15 s, as deploy/observe/prometheus.yml has it. What a first scrape loads is not counted.
A round lasts for about that long: in shorter ones the scrape at the begin weighs too much, and the noise more than it.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from urllib.request import urlopen

import psutil
from redis.asyncio import Redis

from bench import parts
from bench.report import Target, show
from producer.fleet import Fleet
from producer.jobs import Job
from producer.requests import JobRequest
from protocol.wire import JsonObject
from tokenfleet.up.ports import free_port

ROUNDS, QUICK_ROUNDS = 9, 3
SCRAPE_S = 15.0
WARM_UP = 64
LIMIT = 1.03
LONGEST_S = 300


@dataclass(frozen=True, slots=True)
class Load:
    """What a fleet is given.

    Attributes:
        engine: the worker's flags.
        jobs: how many.
        tokens: of each answer.
        stream: whether each token is told.
    """

    engine: Sequence[str]
    jobs: int
    tokens: int
    stream: bool

    @property
    def body(self) -> JsonObject:
        """Of each request."""
        wish = {"max_tokens": self.tokens, "ignore_eos": True, "stream": self.stream}
        return {"model": parts.MODEL, "prompt": "nothing", **wish}


JOBS = Load(("--sim-profile", "instant"), jobs=20_000, tokens=1, stream=False)
TOKENS = Load(("--sim-profile", "h100-8b"), jobs=64, tokens=1_000, stream=True)


async def _cost_s(url: str, load: Load, *, on: bool) -> float:
    """CPU seconds of scheduler and worker for the load."""
    async with Redis.from_url(url) as redis:
        await redis.flushall()
    ports = (free_port(), free_port()) if on else (0, 0)
    worker = ("worker", "--model", parts.MODEL, "--engine", "sim", "--slots", str(parts.SLOTS), *load.engine)
    with ExitStack() as stack:
        commands = [
            parts.tokenfleet(url, *role, "--metrics-port", str(port))
            for role, port in zip((("scheduler",), worker), ports, strict=True)
        ]
        children = [psutil.Process(stack.enter_context(parts.process(command)).pid) for command in commands]
        async with asyncio.timeout(LONGEST_S), Fleet(url) as fleet:
            await fleet.ready(parts.MODEL, timeout=LONGEST_S)
            await _run(fleet, replace(load, tokens=1), WARM_UP)
            for port in filter(None, ports):
                await asyncio.to_thread(_read, port)
            before = sum(map(_cpu_s, children))
            scraping = asyncio.create_task(_scrape([port for port in ports if port]))
            await _run(fleet, load, load.jobs)
            scraping.cancel()
            await asyncio.gather(scraping, return_exceptions=True)
            return sum(map(_cpu_s, children)) - before


async def _run(fleet: Fleet, load: Load, count: int) -> None:
    request = JobRequest(body=load.body, endpoint="/v1/completions", priority="high" if load.stream else "medium")
    jobs: list[Job] = []
    for answer in await fleet.submit_many([request] * count):
        if isinstance(answer, Exception):
            raise answer
        jobs.append(answer)
    for job in jobs:
        await job.result(timeout=LONGEST_S)


def _cpu_s(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


async def _scrape(ports: Sequence[int]) -> None:
    while ports:
        for port in ports:
            await asyncio.to_thread(_read, port)
        await asyncio.sleep(SCRAPE_S)


def _read(port: int) -> None:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LONGEST_S) as answer:
        answer.read()


async def measure(rounds: int) -> dict[tuple[str, bool], list[float]]:
    """CPU microseconds a job and a token, by what was counted and whether it was on; one for each round."""
    found: dict[tuple[str, bool], list[float]] = {}
    async with parts.valkey() as one, parts.valkey() as other:
        for number in range(rounds):
            urls = (one, other) if number % 2 else (other, one)
            for name, load in (("job", JOBS), ("token", TOKENS)):
                units = load.jobs * (load.tokens if load.stream else 1)
                # Each begins first as often as the other.
                sides = (False, True) if number // 2 % 2 else (True, False)
                costs = await asyncio.gather(*(_cost_s(url, load, on=on) for url, on in zip(urls, sides, strict=True)))
                each = {on: 1e6 * spent_s / units for on, spent_s in zip(sides, costs, strict=True)}
                for on, cost in each.items():
                    found.setdefault((name, on), []).append(cost)
                told = f"{name}: off {each[False]:.1f} µs, on {each[True]:.1f} µs, {each[True] / each[False]:.3f}"
                print(told, file=sys.stderr, flush=True)
    return found


def ratios(found: dict[tuple[str, bool], list[float]], name: str) -> list[float]:
    """On over off, round by round."""
    return [on / off for on, off in zip(found[name, True], found[name, False], strict=True)]


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="tables to stderr, one JSON object on stdout")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds instead of {ROUNDS}")
    args = parser.parse_args()
    found = asyncio.run(measure(QUICK_ROUNDS if args.quick else ROUNDS))
    medians = {key: statistics.median(values) for key, values in found.items()}
    targets = [
        Target(f"CPU a {name}, on over off", statistics.median(ratios(found, name)), LIMIT, "lower")
        for name in ("job", "token")
    ]
    figures = {f"CPU µs a {name}, {'on' if on else 'off'}": value for (name, on), value in medians.items()}
    rounds = {f"{name} {'on' if on else 'off'}": values for (name, on), values in found.items()}
    show("The cost of being watched", targets, figures, as_json=args.json, more={"rounds": rounds})


if __name__ == "__main__":
    main()
