"""`make bench-prefix`: rows of GSM8K with one of 8 preambles each, shuffled, on real vLLM: what grouping them brings.

The same rows go through the same fleet to the same server three times, each time with an empty prefix cache: submitted
in the file's order, by `tokenfleet batch run`, and in the file's order again, so that a machine that slows down slows
both sides. The KV cache is small on purpose: it holds the rows that run and a few preambles more, not all of them.
vLLM has one core of the CPU; everything else shares the other one.
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench import parts
from bench.batches.prompts import LEAST_TOKENS, common_tokens, possible_hits, with_preambles
from bench.cases import gsm8k
from bench.report import Target, show
from bench.vllm_env.models import PYTHON, REAL, quick_dtype, real_model
from bench.vllm_env.pinning import pin_server
from bench.vllm_env.server import Served
from producer.fleet import Fleet
from producer.jobs import Job
from producer.requests import JobRequest
from protocol import wire
from protocol.wire import JsonObject
from worker.engine.vllm.metrics import ALL_PATH, caches, read

ROWS = 160
ENGINE_CORE, OTHER_CORE = 0, 1
SEQUENCES = 4
BLOCKS = 32
"""Of 128 tokens each. Four rows that run hold up to 28 where they share nothing; eight preambles hold 40."""
READY_S = 60.0
LONGEST_S = 1_800.0
FLAGS = (
    *("--dtype", quick_dtype(), "--max-model-len", "2048", "--max-num-seqs", str(SEQUENCES), "--enforce-eager"),
    *("--num-gpu-blocks-override", str(BLOCKS), "--block-size", "128", "--enable-prefix-caching"),
    *("--scheduling-policy", "priority", "--enable-prompt-tokens-details", "--stream-interval", "16"),
    "--disable-uvicorn-access-log",
)


@dataclass(frozen=True, slots=True)
class Round:
    """All rows once: rows a minute, and tokens that the cache had."""

    rate: float
    hit_tokens: int


class Engine:
    """The vLLM server, asked without the fleet."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url, self._http = url, http

    async def tokens(self, body: JsonObject) -> list[int]:
        """A chat's prompt."""
        asked = {"model": REAL, "messages": body["messages"]}
        async with self._http.post(f"{self._url}/tokenize", json=asked) as answer:
            found: list[int] = (await answer.json())["tokens"]
        return found

    async def forget(self) -> None:
        """Empty the prefix cache."""
        async with self._http.post(f"{self._url}/reset_prefix_cache") as answer:
            answer.raise_for_status()

    async def hit_tokens(self) -> int:
        """Prompt tokens that the cache had, since the server's start."""
        reading = read(await self._metrics())
        if reading is None:
            raise SystemExit("vLLM tells no figures")
        return reading.prefix_hit_tokens

    async def block_tokens(self) -> int:
        """Tokens that one block of the KV cache holds."""
        return int(next(caches(await self._metrics()))["block_size"])

    async def _metrics(self) -> bytes:
        async with self._http.get(f"{self._url}{ALL_PATH}") as answer:
            return await answer.read()


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(prog="make bench-prefix", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"how many [default: {ROWS}]")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # What is started from here stays on this core, but for vLLM.
    os.sched_setaffinity(0, {OTHER_CORE})
    with tempfile.TemporaryDirectory() as folder:
        targets, figures = asyncio.run(_measure(Path(folder), options.rows))
    show(f"{options.rows} rows with 8 preambles on real vLLM", targets, figures, as_json=options.json)


async def _measure(folder: Path, rows: int) -> tuple[list[Target], dict[str, float]]:
    lines = gsm8k(REAL, rows, folder).read_bytes().splitlines()
    bodies = with_preambles([wire.loads(line)["body"] for line in lines], seed=1)
    source = _written(folder / "shuffled.jsonl", bodies)
    with Served(PYTHON, real_model(), REAL, FLAGS, core=ENGINE_CORE) as server:
        pin_server(server.pid, ENGINE_CORE, ENGINE_CORE)
        async with aiohttp.ClientSession() as http, _fleet(server.url) as url:
            engine = Engine(server.url, http)
            prompts = [await engine.tokens(body) for body in bodies]
            block_tokens = await engine.block_tokens()
            async with Fleet(url) as fleet:
                await fleet.ready(REAL, timeout=READY_S)
                await _in_file_order(fleet, bodies[:SEQUENCES])  # what is done only once is done now
                before = await _round(engine, "file order", _in_file_order(fleet, bodies))
                batch = await _round(engine, "batch run", _by_command(url, source, folder / "out.jsonl"))
                after = await _round(engine, "file order again", _in_file_order(fleet, bodies))
    return _judged([before, after], batch, prompts, block_tokens)


async def _round(engine: Engine, name: str, running: Coroutine[None, None, float]) -> Round:
    """One way to run the rows, which tells its rows a minute; it takes minutes, so each is told."""
    print(f"{name} …", file=sys.stderr, flush=True)
    await engine.forget()
    begin = await engine.hit_tokens()
    rate = await running
    print(f"{name}: {rate:.1f} rows a minute", file=sys.stderr, flush=True)
    return Round(rate, await engine.hit_tokens() - begin)


async def _in_file_order(fleet: Fleet, bodies: Sequence[JsonObject]) -> float:
    """Submit all, in their order; rows a minute."""
    begin = time.monotonic()
    asked = [JobRequest(model=REAL, body=body, priority="medium", best_effort=True) for body in bodies]
    jobs = await fleet.submit_many(asked)
    for job in jobs:
        if not isinstance(job, Job):
            raise job
        outcome = await job.result(timeout=LONGEST_S)
        if outcome.error:
            raise SystemExit(f"a row failed: {outcome.error.code}")
    return len(bodies) / (time.monotonic() - begin) * 60


async def _by_command(url: str, source: Path, target: Path) -> float:
    """`tokenfleet batch run`, as long as it tells that it ran; rows a minute."""
    command = parts.tokenfleet(url, "batch", "run", "-i", str(source), "-o", str(target), "--json")
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    told, _ = await child.communicate()
    summary = wire.loads(told.splitlines()[-1])
    if summary["rows_failed"]:
        raise SystemExit(f"{summary['rows_failed']} rows failed")
    return float(summary["rows_out"] / summary["seconds"] * 60)


@asynccontextmanager
async def _fleet(server: str) -> AsyncIterator[str]:
    """A fleet whose worker is attached to the server; yields Redis's URL."""
    async with parts.valkey() as url:
        worker = parts.tokenfleet(url, "worker", "--engine", "vllm", "--model", REAL, "--attach", server)
        with parts.scheduler(url), parts.process(worker):
            yield url


def _written(path: Path, bodies: Sequence[JsonObject]) -> Path:
    with path.open("wb") as lines:
        for number, body in enumerate(bodies):
            row = {"custom_id": f"r-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            lines.write(wire.dumps(row) + b"\n")
    return path


def _judged(
    files: Sequence[Round], batch: Round, prompts: Sequence[list[int]], block_tokens: int
) -> tuple[list[Target], dict[str, float]]:
    possible = possible_hits(prompts, block_tokens)
    shortest = common_tokens(prompts)
    if shortest < LEAST_TOKENS:
        raise SystemExit(f"a preamble has only {shortest} tokens")
    rate = statistics.mean(one.rate for one in files)
    targets = [
        Target("prefix hits over what is possible", batch.hit_tokens / possible, 0.9, "higher"),
        Target("rows a minute over file order", batch.rate / rate, 1.3, "higher"),
    ]
    figures = {
        "rows a minute, file order": files[0].rate,
        "rows a minute, batch run": batch.rate,
        "rows a minute, file order again": files[1].rate,
        "prefix hits over what is possible, file order": statistics.mean(one.hit_tokens for one in files) / possible,
        "tokens of the shortest preamble": shortest,
        "tokens of a prompt, mean": statistics.mean(map(len, prompts)),
        "tokens of the KV cache": BLOCKS * block_tokens,
        "tokens of a block": block_tokens,
        "rows at once": SEQUENCES,
    }
    return targets, figures


if __name__ == "__main__":
    main()
