"""`make bench-vllm`: what the fleet adds to one real vLLM server, beside clients that ask the same server themselves.

vLLM runs SmolLM2 on one core of the CPU; clients, worker, scheduler and Redis share another. Both sides send the same
chats to the very same server, in alternating rounds: each stream asks one after the other.
"""

import argparse
import asyncio
import os
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bench import parts
from bench.report import Target, show
from bench.vllm_env.fleet_load import FleetLoad
from bench.vllm_env.load import Load, Round, StraightLoad, run_round
from bench.vllm_env.models import PYTHON, REAL, quick_dtype, real_model
from bench.vllm_env.pinning import pin_server
from bench.vllm_env.server import Served

STREAMS, CHATS, ROUNDS = 8, 6, 4
ALONE, CROWD = 1, 16
"""Streams between which the fleet's CPU time a token is compared."""
IDLE_S = 5.0
ENGINE_CORE, OTHER_CORE = 0, 1
FLAGS = (
    *("--dtype", quick_dtype(), "--max-model-len", "2048", "--max-num-seqs", str(CROWD), "--enforce-eager"),
    *("--scheduling-policy", "priority", "--enable-prompt-tokens-details", "--stream-interval", "4"),
    "--disable-uvicorn-access-log",
)
"""As the worker starts its own vLLM."""


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(prog="make bench-vllm", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    # What is started from here stays on this core, but for vLLM.
    os.sched_setaffinity(0, {OTHER_CORE})
    targets, figures = asyncio.run(_measure())
    show(f"{STREAMS} streams on real vLLM, medians of rounds in turns", targets, figures, as_json=options.json)


async def _measure() -> tuple[list[Target], dict[str, float]]:
    with Served(PYTHON, real_model(), REAL, FLAGS, core=ENGINE_CORE) as server:
        pin_server(server.pid, ENGINE_CORE, ENGINE_CORE)
        async with StraightLoad(server.url, REAL) as straight, _fleet(server.url) as fleet:
            for load in (straight, fleet):
                await run_round(load, -1, STREAMS, 1)
            pairs = [await _pair(straight, fleet, number) for number in range(ROUNDS)]
            alone = await _cpu_a_thousand(fleet, ALONE, 2 * CHATS)
            crowd = await _cpu_a_thousand(fleet, CROWD, CHATS)
            idle = await _idle_share(fleet)
    return _targets([pair[0] for pair in pairs], [pair[1] for pair in pairs], alone, crowd, idle)


async def _pair(straight: Load, fleet: Load, number: int) -> tuple[Round, Round]:
    """Both sides once; which one comes first alternates."""
    first, second = (straight, fleet) if number % 2 else (fleet, straight)
    rounds = [await run_round(load, number, STREAMS, CHATS) for load in (first, second)]
    return (rounds[0], rounds[1]) if number % 2 else (rounds[1], rounds[0])


@asynccontextmanager
async def _fleet(server: str) -> AsyncIterator[FleetLoad]:
    """A whole fleet whose worker is attached to the server."""
    async with parts.valkey() as url:
        worker = parts.tokenfleet(url, "worker", "--engine", "vllm", "--model", REAL, "--attach", server)
        with parts.scheduler(url) as scheduler, parts.process(worker) as child:
            async with FleetLoad(url, REAL, [scheduler.pid, child.pid, os.getpid()]) as load:
                yield load


async def _cpu_a_thousand(fleet: FleetLoad, streams: int, chats: int) -> tuple[float, float]:
    """The fleet's CPU seconds for 1,000 tokens at so many streams, and the seconds that these took."""
    before = await fleet.cpu_seconds()
    done = await run_round(fleet, streams, streams, chats)
    thousands = done.tokens / 1000
    return (await fleet.cpu_seconds() - before) / thousands, done.wall_s / thousands


async def _idle_share(fleet: FleetLoad) -> float:
    """The fleet's CPU time a second while nobody asks."""
    before = await fleet.cpu_seconds()
    await asyncio.sleep(IDLE_S)
    return (await fleet.cpu_seconds() - before) / IDLE_S


def _targets(
    straight: Sequence[Round],
    fleet: Sequence[Round],
    alone: tuple[float, float],
    crowd: tuple[float, float],
    idle: float,
) -> tuple[list[Target], dict[str, float]]:
    rates = [statistics.median(r.tokens / r.wall_s for r in side) for side in (straight, fleet)]
    firsts = [statistics.median(first for r in side for first in r.first_token_s) * 1000 for side in (straight, fleet)]
    at_work = [cpu - idle * seconds for cpu, seconds in (alone, crowd)]
    targets = [
        Target("output tokens/s over straight", rates[1] / rates[0], 0.95, "higher"),
        Target("added time to first token p50, ms", firsts[1] - firsts[0], 10, "lower"),
        Target(f"fleet CPU s a 1,000 tokens, {CROWD} streams over {ALONE}", crowd[0] / alone[0], 1.5, "lower"),
    ]
    figures = {
        "output tokens/s, straight": rates[0],
        "output tokens/s, through the fleet": rates[1],
        "time to first token p50, ms, straight": firsts[0],
        "time to first token p50, ms, through the fleet": firsts[1],
        f"fleet CPU s a 1,000 tokens, {ALONE} stream": alone[0],
        f"fleet CPU s a 1,000 tokens, {CROWD} streams": crowd[0],
        "fleet CPU s a second, idle": idle,
        f"the same ratio without what idling takes, {CROWD} over {ALONE}": at_work[1] / at_work[0],
    }
    return targets, figures


if __name__ == "__main__":
    main()
