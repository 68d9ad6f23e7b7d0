"""`make bench-runbatch`: rows of GSM8K through vLLM's own batch module, and through `tokenfleet batch run`.

Each vLLM, server and engine, has one core. Loading is left out on both sides: vLLM's clock runs from its line "Reading
batch" to its line that says 100 %; the fleet's is the time that the command reports, with workers that were active
before. The second straight run has the rows in reverse: what else runs in a batch moves the last bits of a logit, so a
row counts as determined when both orders answer it alike.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import parts
from bench.cases import gsm8k
from bench.report import Target, show
from bench.vllm_env.models import PYTHON, REAL, quick_dtype, real_model
from bench.vllm_env.pinning import pin
from bench.vllm_env.server import server_environment
from producer.fleet import Fleet

ROWS = 200
READY_S = 240.0
CORES = (0, 1)
CHUNK_TOKENS = 16
"""Nobody follows the rows of a batch, so the worker's vLLM need not tell of each few tokens."""
FLAGS = ("--dtype", quick_dtype(), "--max-model-len", "2048", "--max-num-seqs", "16", "--enforce-eager")


@dataclass(frozen=True, slots=True)
class Run:
    """A batch that has run: rows a minute, and the answer to each row."""

    rate: float
    answers: dict[str, str]


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(prog="make bench-runbatch", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"how many [default: {ROWS}]")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        source = gsm8k(REAL, options.rows, scratch)
        # The fleet's runs stand between the straight ones, so that a machine that slows down slows both sides.
        first = _straight(source, scratch)
        fleet = [asyncio.run(_through_fleet(source, scratch, cores)) for cores in (CORES[:1], CORES)]
        second = _straight(_reversed(source), scratch)
    targets, figures = _targets([first, second], fleet)
    show(f"{options.rows} rows of GSM8K on real vLLM", targets, figures, as_json=options.json)


def _reversed(source: Path) -> Path:
    target = source.with_suffix(".reversed")
    target.write_text("".join(reversed(source.read_text(encoding="utf-8").splitlines(keepends=True))), encoding="utf-8")
    return target


def _straight(source: Path, scratch: Path) -> Run:
    """The batch module of vLLM itself, all of it on one core."""
    target, rows = scratch / "straight.jsonl", len(source.read_text(encoding="utf-8").splitlines())
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.run_batch", "-i", str(source), "-o", str(target)]
    command += ["--model", str(real_model()), "--served-model-name", REAL, *FLAGS]
    env = server_environment(CORES[0]) | {"PYTHONUNBUFFERED": "1"}
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(_on(CORES[0], command), env=env, stdout=pipe, stderr=both, text=True) as child:
        begin = end = 0.0
        for line in child.stdout or ():
            if "Reading batch from" in line:
                begin = time.perf_counter()
            elif f"Completed | {rows}/{rows} " in line:
                end = time.perf_counter()
    if not end or child.returncode:
        raise SystemExit(f"vLLM's batch module ended with code {child.returncode}")
    return Run(rows / (end - begin) * 60, _answers(target))


async def _through_fleet(source: Path, scratch: Path, cores: Sequence[int]) -> Run:
    """The same rows through `tokenfleet batch run` and a worker for each of these cores."""
    target = scratch / "fleet.jsonl"
    async with _fleet(cores) as url:
        command = parts.tokenfleet(url, "batch", "run", "-i", str(source), "-o", str(target), "--json")
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        told, _ = await child.communicate()
    summary = json.loads(told.splitlines()[-1])
    if summary["rows_failed"]:
        raise SystemExit(f"{summary['rows_failed']} rows failed")
    return Run(summary["rows_out"] / summary["seconds"] * 60, _answers(target))


@asynccontextmanager
async def _fleet(cores: Sequence[int]) -> AsyncIterator[str]:
    """A fleet with an active worker for each of these cores; yields Redis's URL.

    A core serves a worker's vLLM alone as long as another one is left for everything else.
    """
    others = set(CORES) - set(cores) or set(CORES)
    os.sched_setaffinity(0, others)
    async with parts.valkey() as url:
        with parts.scheduler(url), ExitStack() as held:
            workers = [held.enter_context(_worker(url, core)) for core in cores]
            async with Fleet(url) as fleet:
                await _active(fleet, len(cores))
            for worker in workers:
                pin(worker.pid, *others)
            yield url


def _worker(url: str, core: int) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    command = parts.tokenfleet(url, "worker", "--engine", "vllm", "--model", REAL, "--vllm-python", str(PYTHON))
    flags = ["--", "--model", str(real_model()), "--stream-interval", str(CHUNK_TOKENS), *FLAGS]
    return parts.process(_on(core, [*command, *flags]), **server_environment(core))


async def _active(fleet: Fleet, count: int) -> None:
    """Wait until so many workers take jobs."""
    async with asyncio.timeout(READY_S):
        while True:
            workers = [worker for shard in (await fleet.status()).shards for worker in shard.workers]
            if sum(worker.state == "active" for worker in workers) == count:
                return
            await asyncio.sleep(0.2)


def _on(core: int, command: list[str]) -> list[str]:
    return ["taskset", "--cpu-list", str(core), *command]


def _answers(path: Path) -> dict[str, str]:
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row["custom_id"]: row["response"]["body"]["choices"][0]["message"]["content"] for row in rows}


def _targets(straight: Sequence[Run], fleet: Sequence[Run]) -> tuple[list[Target], dict[str, float]]:
    first, second = straight
    one, two = fleet
    rate = statistics.mean(run.rate for run in straight)
    determined = {row for row, answer in first.answers.items() if second.answers[row] == answer}
    equal = [sum(run.answers[row] == first.answers[row] for row in determined) / len(determined) for run in fleet]
    targets = [
        Target("rows a minute over run-batch, one worker", one.rate / rate, 0.95, "higher"),
        Target("rows a minute, two workers over one", two.rate / one.rate, 1.6, "higher"),
        Target("answers equal where two straight runs agree", min(equal), 1.0, "higher"),
    ]
    figures = {
        "rows a minute, run-batch": first.rate,
        "rows a minute, run-batch, rows in reverse": second.rate,
        "rows a minute, one worker": one.rate,
        "rows a minute, two workers": two.rate,
        "rows where two straight runs agree": len(determined),
        "answers equal there, one worker": equal[0],
        "answers equal there, two workers": equal[1],
    }
    return targets, figures


if __name__ == "__main__":
    main()
