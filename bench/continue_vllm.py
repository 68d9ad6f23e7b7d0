"""`make continue-vllm`: a real vLLM worker is killed in mid-stream; the follower's text must be the undisturbed one.

Two workers run SmolLM2 in float32, each on a core of the CPU. Each case runs once undisturbed, and once while its
worker and engine are killed with -9 at a place of its own; the other worker goes on. Their prefix caches are kept
apart by two tenants, so that the text is computed anew. Chats and completions take turns.
"""

import argparse
import asyncio
import os
import signal
import sys
from dataclasses import dataclass

from bench.report import Target, show
from bench.vllm_env.models import PYTHON, REAL, real_model
from producer.events import Restart, Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from producer.workers import read_roster
from protocol.wire import JsonObject
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

START_S, JOB_S = 240.0, 120.0
TOKENS = 160
LEASE_S = "2"
FLAGS = ("--dtype", "float32", "--max-model-len", "2048", "--enforce-eager")
ASKED = (
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "The history of the steam engine begins with",
    "Explain step by step how to bake bread, with a numbered list.",
    "def quicksort(items):\n",
    "Compose an email to your landlord about a broken heater.",
    "Once upon a time in a small village by the sea,",
    "Name five planets and describe each one in two sentences.",
    "The three most important laws of physics are:\n1.",
    "Write a Python function that counts the vowels of a text, and explain it.",
    "Dear diary, today I",
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a follower saw: the text that it ended up with, how often that began anew, and the job's usage."""

    text: str
    restarts: int
    usage: JsonObject


@dataclass(frozen=True, slots=True)
class Case:
    """One job, and after which share of its text its worker is killed."""

    body: JsonObject
    share: float


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(prog="make continue-vllm", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--cases", type=int, default=len(ASKED), help="how many of the cases")
    options = parser.parse_args()
    pairs = asyncio.run(_measure(_cases()[: options.cases]))
    same = sum(plain.text == killed.text for plain, killed in pairs)
    targets = [Target("texts equal to the undisturbed run's", same, len(pairs), "higher")]
    figures = {
        "streams that began anew": sum(killed.restarts for _, killed in pairs),
        "usage equal to the undisturbed run's": sum(_counts(plain) == _counts(killed) for plain, killed in pairs),
    }
    show("a vLLM worker killed in mid-stream", targets, figures, as_json=options.json)


def _cases() -> list[Case]:
    limits = {"max_tokens": TOKENS, "temperature": 0}
    bodies = [
        {"prompt": text} if number % 2 else {"messages": [{"role": "user", "content": text}]}
        for number, text in enumerate(ASKED)
    ]
    return [Case(body | limits, (number + 0.5) / len(ASKED)) for number, body in enumerate(bodies)]


async def _measure(cases: list[Case]) -> list[tuple[Seen, Seen]]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENFLEET_LEASE_S", LEASE_S)
    flags = ("--model", str(real_model()), *FLAGS)
    options = FleetOptions(engine="vllm", model=REAL, vllm_python=PYTHON, vllm_flags=flags)
    async with EmbeddedFleet(options) as embedded:
        await embedded.ready(START_S)
        async with Fleet(embedded.redis_url, tenant="calm") as calm, Fleet(embedded.redis_url) as fleet:
            plain = [await _follow(calm, case.body) for case in cases]
            return [(seen, await _killed(embedded, fleet, case, seen)) for case, seen in zip(cases, plain, strict=True)]


async def _follow(fleet: Fleet, body: JsonObject) -> Seen:
    job = await fleet.submit(model=REAL, body=body, stream=True)
    return await _read(fleet, job)


async def _killed(embedded: EmbeddedFleet, fleet: Fleet, case: Case, plain: Seen) -> Seen:
    """The same job once more, with its worker killed when the follower has that share of the text."""
    await embedded.ready(START_S)
    at = max(1, int(case.share * len(plain.text)))
    job = await fleet.submit(model=REAL, body=case.body, stream=True)
    reached = asyncio.Event()
    async with asyncio.timeout(JOB_S), asyncio.TaskGroup() as group:
        reading = group.create_task(_read(fleet, job, at, reached))
        await reached.wait()
        label = await _worker_of(fleet, job)
        embedded.process(label).kill(signal.SIGKILL)
    seen = reading.result()
    _tell(label, at, plain, seen)
    return seen


def _tell(label: str, at: int, plain: Seen, seen: Seen) -> None:
    """One line for people, as it happens."""
    pairs = enumerate(zip(plain.text, seen.text, strict=False))
    common = next((place for place, (one, other) in pairs if one != other), min(len(plain.text), len(seen.text)))
    verdict = "the same text" if seen.text == plain.text else f"ANOTHER TEXT from character {common} on"
    again = ", begun anew" if seen.restarts else ""
    print(f"killed {label} after {at} of {len(plain.text)} characters: {verdict}{again}", file=sys.stderr, flush=True)


async def _read(fleet: Fleet, job: Job, at: int = 0, reached: asyncio.Event | None = None) -> Seen:
    """Follow a job to its end; tell once `at` characters have come."""
    text, restarts = "", 0
    async for event in fleet.follow(job):
        if isinstance(event, Restart):
            text, restarts = "", restarts + 1
        elif isinstance(event, Tokens):
            text += event.text
            if reached and len(text) >= at:
                reached.set()
    outcome = await job.result(JOB_S)
    return Seen(text if outcome.text == text else f"{text}\n!= {outcome.text}", restarts, outcome.usage)


async def _worker_of(fleet: Fleet, job: Job) -> str:
    """The label of the worker that runs the job."""
    worker = (await job.info()).record.worker
    roster = await read_roster(fleet.redis)
    return next(placed.record.label for placed in roster.workers if placed.record.id == worker)


def _counts(seen: Seen) -> tuple[int, int]:
    return seen.usage["prompt_tokens"], seen.usage["completion_tokens"]


if __name__ == "__main__":
    main()
