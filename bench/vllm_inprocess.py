"""The measurement behind docs/decisions/0011: vLLM served over HTTP, beside vLLM inside the process that relays.

It runs on the interpreter that has vLLM: `.venv-vllm/bin/python -m bench.vllm_inprocess --model FOLDER`.
Both engines compute on one core; what relays their tokens (served: the API server and a client; in process: the
process that holds the `AsyncLLM`) shares the other. Rounds alternate.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from bench.report import show
from bench.vllm_env.pinning import cpu_seconds, pin, pin_server
from bench.vllm_env.server import Served, server_environment

STREAMS = 8
TOKENS = 128
"""Output tokens of each stream."""
ROUNDS = 3
SETTLE_S = 3
ENGINE_CORE, RELAY_CORE = 0, 1
NAME = "smollm2-135m"
MARK = "round "
"""Begins the lines that are ours: vLLM logs to the same output."""
FLAGS: dict[str, Any] = {"dtype": "bfloat16", "max_model_len": 2048, "max_num_seqs": 16, "enforce_eager": True}


@dataclass(frozen=True, slots=True)
class Round:
    """What one side did; times in seconds."""

    wall_s: float
    relay_cpu_s: float
    """CPU time of all processes that relay."""
    first_token_s: float
    """Median over the streams."""


Relay = Callable[[str], AsyncIterator[object]]
"""Streams the pieces of a prompt's completion, which has `TOKENS` tokens."""


async def measure(relay: Relay, name: str, relaying: list[int]) -> Round:
    """Run all streams at once; `relaying` are the processes whose CPU time counts."""
    first: list[float] = []

    async def one(stream: int) -> None:
        begin, said = time.perf_counter(), False
        async for _ in relay(f"Round {name}, story {stream}: once upon a time there was a"):
            if not said:
                first.append(time.perf_counter() - begin)
            said = True

    cpu, begin = cpu_seconds(relaying), time.perf_counter()
    await asyncio.gather(*(one(stream) for stream in range(STREAMS)))
    return Round(time.perf_counter() - begin, cpu_seconds(relaying) - cpu, statistics.median(first))


async def answer_rounds(relay: Relay, relaying: list[int]) -> None:
    """A round to warm up, then one for each line of stdin, which names it."""
    name = "warm"
    while name:
        print(MARK + json.dumps(asdict(await measure(relay, name, relaying))), flush=True)
        name = (await asyncio.to_thread(sys.stdin.readline)).strip()


async def in_process(model: str, interval: int) -> None:
    """The side that holds its engine."""
    from vllm import SamplingParams  # noqa: PLC0415 - only this side needs it
    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - as above
    from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415 - as above
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415 - as above

    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=model, stream_interval=interval, **FLAGS))
    delta = RequestOutputKind.DELTA
    asked = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True, output_kind=delta)

    async def relay(prompt: str) -> AsyncIterator[object]:
        async for output in engine.generate(prompt, asked, request_id=prompt):
            piece = output.outputs[0]
            # A worker passes OpenAI chunks on, so making one belongs to the price.
            yield json.dumps({"choices": [{"index": 0, "text": piece.text, "finish_reason": piece.finish_reason}]})

    await answer_rounds(relay, [os.getpid()])
    engine.shutdown()


async def over_http(url: str, server: int) -> None:
    """The side that talks to a served engine, whose API server is the process `server`."""
    import aiohttp  # noqa: PLC0415 - only this side needs it

    body = {"model": NAME, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True}
    async with aiohttp.ClientSession() as session:

        async def relay(prompt: str) -> AsyncIterator[object]:
            async with session.post(f"{url}/v1/completions", json=body | {"prompt": prompt}) as response:
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        yield json.loads(line[6:])

        await answer_rounds(relay, [os.getpid(), server])


class Side:
    """One side's process; it is warm once this is made."""

    def __init__(self, arguments: list[str], log: IO[bytes]) -> None:
        """Start it and wait for its first round."""
        command = [sys.executable, "-m", "bench.vllm_inprocess", *arguments]
        pipe = subprocess.PIPE
        env = server_environment(ENGINE_CORE)
        self._process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=log, text=True)
        self.pid = self._process.pid
        self._answer()

    def run(self, name: str) -> Round:
        """One round."""
        if self._process.stdin:
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Round:
        for line in self._process.stdout or ():
            if line.startswith(MARK):
                return Round(**json.loads(line.removeprefix(MARK)))
        raise SystemExit("a side of the measurement ended; see its log")

    def close(self) -> None:
        """End it by the end of its input."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait(timeout=60)


def compare(model: Path, interval: int, scratch: Path) -> dict[str, list[Round]]:
    """Alternating rounds of both sides."""
    with ExitStack() as held, (scratch / "log").open("wb") as log:
        flags = [word for name, value in FLAGS.items() for word in _flag(name, value)]
        flags += ["--stream-interval", str(interval)]
        served = held.enter_context(Served(Path(sys.executable), model, NAME, flags, core=ENGINE_CORE))
        http = Side(["--url", served.url, "--server", str(served.pid)], log)
        held.callback(http.close)
        held_engine = Side(["--in-process", "--model", str(model), "--stream-interval", str(interval)], log)
        held.callback(held_engine.close)
        pin_server(served.pid, RELAY_CORE, ENGINE_CORE)
        pin_server(held_engine.pid, RELAY_CORE, ENGINE_CORE)
        pin(http.pid, RELAY_CORE)
        sides = {"served": http, "in process": held_engine}
        rounds: dict[str, list[Round]] = {name: [] for name in sides}
        for number in range(ROUNDS):
            for name, side in sides.items():
                # An engine's threads spin for a second after its last step, and both compute on one core.
                time.sleep(SETTLE_S)
                rounds[name].append(side.run(f"{number} {name}"))
        return rounds


def _flag(name: str, value: object) -> list[str]:
    flag = "--" + name.replace("_", "-")
    return [flag] if value is True else [flag, str(value)]


def figures_of(rounds: dict[str, list[Round]]) -> dict[str, float]:
    """Medians, by what they are."""
    median = statistics.median
    figures = {}
    for name, side in rounds.items():
        figures[f"{name}: output tokens/s"] = median(STREAMS * TOKENS / r.wall_s for r in side)
        figures[f"{name}: tokens relayed a CPU second"] = median(STREAMS * TOKENS / r.relay_cpu_s for r in side)
        figures[f"{name}: time to first token p50, ms"] = median(r.first_token_s for r in side) * 1000
    return figures


def main() -> None:
    """Measure, or be one of the sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="the folder of the converted SmolLM2")
    parser.add_argument("--stream-interval", type=int, default=1, help="tokens of a piece, after the first")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    for side in ("--url", "--server"):
        parser.add_argument(side, help=argparse.SUPPRESS)
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_process:
        asyncio.run(in_process(str(options.model), options.stream_interval))
    elif options.url:
        asyncio.run(over_http(options.url, int(options.server)))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            rounds = compare(options.model, options.stream_interval, Path(scratch))
        title = f"{STREAMS} streams of {TOKENS} tokens, {options.stream_interval} a piece; medians of {ROUNDS} rounds"
        show(title, [], figures_of(rounds), as_json=options.json)


if __name__ == "__main__":
    main()
