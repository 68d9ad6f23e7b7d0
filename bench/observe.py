"""What it costs to be watched: CPU of scheduler and worker a job and a token, metrics and traces on against off.

Viewers of the page or of `top` are not part of it: they read Redis, and ask neither of the two.
Both sides run the same load at the same time, on fleets and servers of their own: whatever else this machine does hits
both alike, and a round's ratio says more than its figures. While it is on, each role serves its metrics, and they are
scraped at the begin and every 15 s, as deploy/observe/prometheus.yml has it. What a first scrape loads is not counted.
Each job carries a trace, of which its caller's sampler records one in a hundred: those go to a collector over HTTP.
What a job costs whose trace is recorded is told apart. A round lasts for about as long as the time between two scrapes:
in shorter ones the scrape at the begin weighs too much, and the noise more than it.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
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
SAMPLE_EACH = 100
"""One in so many traces is recorded."""
SCRAPE_S = 15.0
WARM_UP = 64
TRACED = "job, each traced"
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

    def requests(self, count: int, sample_each: int) -> list[JobRequest]:
        """So many; each carries a trace, one in `sample_each` a recorded one. 0: none does."""
        request = JobRequest(body=self.body, endpoint="/v1/completions", priority="high" if self.stream else "medium")
        if not sample_each:
            return [request] * count
        left_out, recorded = (replace(request, trace=f"00-{'1' * 32}-{'2' * 16}-0{flag}") for flag in (0, 1))
        return [left_out if number % sample_each else recorded for number in range(count)]

    @property
    def body(self) -> JsonObject:
        """Of each request."""
        wish = {"max_tokens": self.tokens, "ignore_eos": True, "stream": self.stream}
        return {"model": parts.MODEL, "prompt": "nothing", **wish}


JOBS = Load(("--sim-profile", "instant"), jobs=20_000, tokens=1, stream=False)
TOKENS = Load(("--sim-profile", "h100-8b"), jobs=64, tokens=1_000, stream=True)


async def _cost_s(url: str, load: Load, collector: str, *, on: bool, sample_each: int) -> float:
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
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "NO_PROXY": "*"} if on else {}
        children = [psutil.Process(stack.enter_context(parts.process(how, **traced)).pid) for how in commands]
        async with asyncio.timeout(LONGEST_S), Fleet(url) as fleet:
            await fleet.ready(parts.MODEL, timeout=LONGEST_S)
            await _run(fleet, replace(load, tokens=1).requests(WARM_UP, 1 if on else 0))
            for port in filter(None, ports):
                await asyncio.to_thread(_read, port)
            before = sum(map(_cpu_s, children))
            scraping = asyncio.create_task(_scrape([port for port in ports if port]))
            await _run(fleet, load.requests(load.jobs, sample_each if on else 0))
            scraping.cancel()
            await asyncio.gather(scraping, return_exceptions=True)
            return sum(map(_cpu_s, children)) - before


async def _run(fleet: Fleet, requests: Sequence[JobRequest]) -> None:
    jobs: list[Job] = []
    for answer in await fleet.submit_many(requests):
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


@contextmanager
def _collector() -> Iterator[str]:
    """Takes spans and drops them; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


Found = dict[tuple[str, bool], list[float]]
"""CPU microseconds a job and a token, by what was counted and whether it was on; one for each round."""


async def measure(rounds: int) -> Found:
    """All rounds; and of `job, each traced` as many as of the quick run."""
    found: Found = {}
    with _collector() as collector:
        async with parts.valkey() as one, parts.valkey() as other:
            for number in range(rounds):
                fleets = _Fleets(*((one, other) if number % 2 else (other, one)), collector)
                # Each begins first as often as the other.
                sides = (False, True) if number // 2 % 2 else (True, False)
                await _round(found, "job", JOBS, fleets, sides)
                await _round(found, "token", TOKENS, fleets, sides)
                if number < QUICK_ROUNDS:
                    await _round(found, TRACED, replace(JOBS, jobs=JOBS.jobs // 4), fleets, sides, sample_each=1)
    return found


@dataclass(frozen=True, slots=True)
class _Fleets:
    """The servers of two fleets, and where they send their spans."""

    first: str
    second: str
    collector: str


async def _round(
    found: Found, name: str, load: Load, fleets: _Fleets, sides: Sequence[bool], sample_each: int = SAMPLE_EACH
) -> None:
    """One side on each fleet, at the same time."""
    cost = partial(_cost_s, load=load, collector=fleets.collector, sample_each=sample_each)
    costs = await asyncio.gather(
        *(cost(url, on=on) for url, on in zip((fleets.first, fleets.second), sides, strict=True))
    )
    units = load.jobs * (load.tokens if load.stream else 1)
    each = {on: 1e6 * spent_s / units for on, spent_s in zip(sides, costs, strict=True)}
    for on, micros in each.items():
        found.setdefault((name, on), []).append(micros)
    told = f"{name}: off {each[False]:.1f} µs, on {each[True]:.1f} µs, {each[True] / each[False]:.3f}"
    print(told, file=sys.stderr, flush=True)


def ratios(found: Found, name: str) -> list[float]:
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
    figures = {f"CPU a {TRACED}, on over off": statistics.median(ratios(found, TRACED))}
    figures |= {f"CPU µs a {name}, {'on' if on else 'off'}": value for (name, on), value in medians.items()}
    rounds = {f"{name} {'on' if on else 'off'}": values for (name, on), values in found.items()}
    show("The cost of being watched", targets, figures, as_json=args.json, more={"rounds": rounds})


if __name__ == "__main__":
    main()
