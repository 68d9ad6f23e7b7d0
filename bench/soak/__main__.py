"""`make soak MINUTES=60`: steady load through all roles; what grows over the last half of the time?"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack

import psutil
from redis.asyncio import Redis

from bench import parts
from bench.report import Target, show
from bench.soak.growth import Series
from bench.soak.plan import BATCH_KEEP_S, KEEP_S, KEPT, MODEL, SAMPLE_S, SCHEDULERS, WORKERS
from protocol import store
from protocol.call import Call, run
from tokenfleet.up.ports import free_port

REDIS_PERCENT = 1.0
RESIDENT_PERCENT = 3.0
TELL_EACH_S = 60.0
MIB = 2**20
VALKEY = "valkey"
Sampled = dict[str, Series]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long")
    parser.add_argument("--forget", action="store_true", help="leave no job to its retention: for trials of minutes")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    memory, resident, descriptors = asyncio.run(_soak(options.minutes * 60, 0 if options.forget else KEPT))
    worst = max(resident, key=lambda name: resident[name].growth_percent)
    most = max(descriptors, key=lambda name: descriptors[name].added)
    most_grown = f"growth of resident memory, %, the most: {worst}"
    targets = [
        Target("growth of Redis without buffers, %", memory.growth_percent, REDIS_PERCENT, "lower"),
        Target(most_grown, resident[worst].growth_percent, RESIDENT_PERCENT, "lower"),
        Target(f"growth of descriptors, the most: {most}", descriptors[most].added, 0, "lower"),
    ]
    figures = {"Redis at the end, MiB": memory.values[-1] / MIB}
    for name, series in resident.items():
        figures[f"{name}: resident, MiB"] = series.values[-1] / MIB
        figures[f"{name}: growth, %"] = series.growth_percent
        figures[f"{name}: descriptors"] = descriptors[name].values[-1]
    show("soak", targets, figures, as_json=options.json)


async def _soak(seconds: float, kept: int) -> tuple[Series, Sampled, Sampled]:
    """Run all roles for so long; samples of Redis's memory, and of each process's memory and descriptors."""
    async with parts.valkey() as url:
        redis = store.connect(url)
        with ExitStack() as stack:
            processes = _start(stack, url, kept)
            try:
                return await _sample(redis, processes, seconds)
            finally:
                await redis.aclose()


def _start(stack: ExitStack, url: str, kept: int) -> dict[str, psutil.Process]:
    engine = ["--engine", "sim", "--model", MODEL, "--slots", "32"]
    commands = {f"scheduler-{n}": parts.tokenfleet(url, "scheduler") for n in range(SCHEDULERS)}
    commands |= {f"worker-{n}": parts.tokenfleet(url, "worker", *engine) for n in range(WORKERS)}
    port = free_port()
    commands["gateway"] = parts.tokenfleet(url, "gateway", "--open", "--port", str(port))
    commands["batch-runner"] = parts.tokenfleet(url, "batch-runner")
    commands |= {kind: [*parts.module("bench.soak.load"), kind, url, str(kept)] for kind in ("dialogue", "batch")}
    commands["web"] = [*parts.module("bench.soak.web"), f"http://127.0.0.1:{port}"]
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    kept_s = {"TOKENFLEET_KEEP_S": str(KEEP_S), "TOKENFLEET_BATCH_KEEP_S": str(BATCH_KEEP_S)}
    shared = {"TOKENFLEET_STORE": folder} | kept_s
    running = {name: stack.enter_context(parts.process(how, **shared)) for name, how in commands.items()}
    return {name: psutil.Process(process.pid) for name, process in running.items()}


async def _sample(
    redis: Redis, processes: dict[str, psutil.Process], seconds: float
) -> tuple[Series, Sampled, Sampled]:
    memory = Series()
    resident: Sampled = defaultdict(Series)
    descriptors: Sampled = defaultdict(Series)
    server = await run(redis, Call(("INFO", "server"), lambda told: int(told["process_id"])))
    watched = processes | {VALKEY: psutil.Process(server)}
    loop = asyncio.get_running_loop()
    begin = tell_s = loop.time()
    while loop.time() < begin + seconds:
        await asyncio.sleep(SAMPLE_S)
        memory.values.append(await run(redis, Call(("INFO", "memory"), parts.own_memory)))
        for name, process in watched.items():
            if process.status() == psutil.STATUS_ZOMBIE:
                raise SystemExit(f"{name} has ended")
            resident[name].values.append(float(process.memory_info().rss))
            descriptors[name].values += _descriptors(process, rewrites=name == VALKEY)
        if loop.time() >= tell_s:
            tell_s += TELL_EACH_S
            sizes = ", ".join(f"{name} {series.values[-1] / MIB:.1f}" for name, series in resident.items())
            print(f"{loop.time() - begin:.0f} s: Redis {memory.values[-1] / MIB:.1f}, {sizes} MiB", file=sys.stderr)
    return memory, resident, descriptors


def _descriptors(process: psutil.Process, *, rewrites: bool) -> list[float]:
    """How many are open; nothing while a child writes the append-only file anew: its pipe is held until it ends."""
    before = rewrites and process.children()
    count = float(process.num_fds())
    return [] if before or (rewrites and process.children()) else [count]


if __name__ == "__main__":
    main()
