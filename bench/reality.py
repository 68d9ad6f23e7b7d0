"""`make bench-reality`: one trace against real processes and in the simulator: does simulation tell the truth?

A real Valkey, a real scheduler and four workers on the simulated engine in wall time get the same requests at the same
moments as a world on virtual time. A first token's time is Redis's own: from the submission to the first frame.
"""

import argparse
import asyncio
from contextlib import ExitStack

from bench import parts
from bench.report import Target, show
from producer.fleet import Fleet
from protocol import reads
from protocol.call import run
from protocol.settings import Settings
from scheduler.policy.order import Targets
from scheduler.policy.registry import POLICIES
from tokenfleet.simulate.engine import WorkerSpec
from tokenfleet.simulate.generated import Shape, generate
from tokenfleet.simulate.job import Request
from tokenfleet.simulate.scenario import Scenario
from tokenfleet.simulate.summary import Percentiles
from tokenfleet.simulate.traces import Trace
from tokenfleet.simulate.world import World

WORKERS, SLOTS = 4, 256
SHAPE = Shape(rows=780, a_second=13.0, prompt=(5_000.0, 0.6), output=(40.0, 0.6), longest=20_000)
"""About a minute. The prompts are long, so that the engines, and not this machine's two cores, set the pace."""
WITHIN = 0.15
CHARS_A_TOKEN = 4


def main() -> None:
    """Run both sides."""
    parser = argparse.ArgumentParser(prog="make bench-reality", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--seed", type=int, default=0, help="of the trace [default: 0]")
    options = parser.parse_args()
    requests = Trace("generated", tuple(generate(SHAPE, options.seed)), SHAPE.block_tokens).requests()
    real, simulated = asyncio.run(_real(requests)), _simulated(requests)
    pairs = {"p50": (real.p50, simulated.p50), "p99": (real.p99, simulated.p99)}
    targets = [
        Target(f"first token, {name}: simulated over real, off by", abs(ours / theirs - 1), WITHIN, "lower")
        for name, (theirs, ours) in pairs.items()
    ]
    figures = {f"{name} ms, {side}": pair[place] for name, pair in pairs.items() for place, side in enumerate(SIDES)}
    show(f"{len(requests)} requests on {WORKERS} workers", targets, figures, as_json=options.json)


SIDES = ("real processes", "simulated")


def _simulated(requests: list[Request]) -> Percentiles:
    specs = [WorkerSpec(f"w{n}", sequences=SLOTS, block_tokens=SHAPE.block_tokens) for n in range(WORKERS)]
    report_ms = 1000 * Settings().report_s
    world = World(Scenario(requests, specs, POLICIES[Settings().policy], Targets(), report_ms=report_ms))
    return Percentiles.of(one.ttft_ms for one in world.run() if one.ttft_ms is not None)


async def _real(requests: list[Request]) -> Percentiles:
    async with parts.valkey() as url:
        engine = ("--engine", "sim", "--sim-profile", "h100-8b", "--slots", str(SLOTS))
        with parts.scheduler(url), ExitStack() as held:
            for _ in range(WORKERS):
                held.enter_context(parts.process(parts.tokenfleet(url, "worker", "--model", parts.MODEL, *engine)))
            async with Fleet(url) as fleet:
                await fleet.ready(parts.MODEL, timeout=30)
                await _all_active(fleet)
                return Percentiles.of(await _times_ms(fleet, requests))


async def _all_active(fleet: Fleet) -> None:
    async with asyncio.timeout(30):
        while True:
            workers = [worker for shard in (await fleet.status()).shards for worker in shard.workers]
            if sum(worker.state == "active" for worker in workers) == WORKERS:
                return
            await asyncio.sleep(0.1)


async def _times_ms(fleet: Fleet, requests: list[Request]) -> list[float]:
    """Submit each at its moment; from submission to first token as Redis recorded them."""
    loop = asyncio.get_running_loop()
    bodies = [_body(request) for request in requests]
    begin, jobs = loop.time() + 0.5, []
    for request, body in zip(requests, bodies, strict=True):
        await asyncio.sleep(max(0.0, begin + request.at_ms / 1000 - loop.time()))
        jobs.append(
            asyncio.create_task(
                fleet.submit(model=parts.MODEL, body=body, endpoint="/v1/completions", priority="high", stream=True)
            )
        )
    times = []
    for job in await asyncio.gather(*jobs):
        await job.result(timeout=60)
        record = await run(fleet.redis, reads.job_record(job.handle))
        if record and record.first_token_ms:
            times.append(float(record.first_token_ms - record.submitted_ms))
    return times


def _body(request: Request) -> dict[str, object]:
    """A prompt with as many tokens, and equal where the request's blocks are; the answer has its length exactly."""
    width = SHAPE.block_tokens * CHARS_A_TOKEN
    text = "".join(_filled(f"block {block}. ", width) for block in request.blocks)
    rest = request.prompt_tokens * CHARS_A_TOKEN - len(text)
    text += _filled(f"end {request.id}. ", rest)
    return {"model": parts.MODEL, "prompt": text, "max_tokens": request.output_tokens, "ignore_eos": True}


def _filled(phrase: str, width: int) -> str:
    return (phrase * (width // len(phrase) + 1))[:width]


if __name__ == "__main__":
    main()
