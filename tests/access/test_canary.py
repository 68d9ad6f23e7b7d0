"""A text that stands in prompts and answers, and secrets that stand in settings: neither is ever seen anywhere else."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import Tracer
from redis import Redis

from producer.events import Restart, Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from protocol import keys
from protocol.errors import FleetError
from protocol.settings import Settings
from protocol.states import State
from protocol.wire import JsonObject, dumps
from tests.access.echo import echoing
from tests.access.fleet import PASSWORD, guarded, login, url_of
from tests.access.fleet import roles as users
from tests.access.processes import STAND_IN, Roles, roles
from tests.observe.collector import Collector
from tests.support import snapshot
from tests.support.servers import Server, valkey_binary
from tests.support.waiting import eventually

CANARY = "canary-5b1f0c77e2"
KEY = "engine-key-93ab10"
SIGNING = "signing-key-77d2"
METRICS = {
    "scheduler": "tokenfleet_scheduler_assignments_total{",
    "echo": "tokenfleet_worker_attempts_total{",
    "vllm": "tokenfleet_worker_attempts_total{",
    "runner": "tokenfleet_batch_ends_total{",
}
"""One of what each role counts."""
STORED = ("body:", "result:", "tokens:")
"""Kinds of keys that are there to hold prompts and answers."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with guarded(valkey_binary(), folder, users()) as running:
        yield running


@contextmanager
def fleet_of_processes(server: Server, folder: Path, engine: str, collector: Collector) -> Iterator[Roles]:
    """A scheduler, a worker on the echoing engine, one with (a stand-in of) its own vLLM, a batch runner.

    All say all they can.
    """
    (folder / "password").write_text(f"{PASSWORD}\n")
    (folder / "key").write_text(KEY)
    (folder / "signing").write_text(SIGNING)
    environment = collector.env | {
        "TOKENFLEET_REDIS_PASSWORD_FILE": str(folder / "password"),
        "TOKENFLEET_ENGINE_API_KEY_FILE": str(folder / "key"),
        "TOKENFLEET_LOG_LEVEL": "debug",
        "TOKENFLEET_LOG_FORMAT": "json",
        "TOKENFLEET_DRAIN_S": "1",
        "PYTHONPATH": os.pathsep.join([str(STAND_IN), str(Path(__file__).parents[2])]),
    }
    out = folder / "out"
    out.mkdir()

    def url(user: str) -> str:
        return server.url.replace("//", f"//{user}@")

    with roles(out, environment) as made:
        made.start(
            "scheduler", "scheduler", "--record", str(out / "record.jsonl"), TOKENFLEET_REDIS_URL=url("scheduler")
        )
        worker = url("worker-worker-1")
        common = ("worker", "--label", "worker-1", "--redis-url", worker)
        made.start("echo", *common, "--model", "echo", "--engine", "openai", "--attach", engine)
        made.start("vllm", *common, "--model", "vllm", "--engine", "vllm", "--vllm-python", sys.executable)
        # Nobody listens to its calls: what goes wrong with them is told.
        hook = {"TOKENFLEET_WEBHOOK_URL": "http://127.0.0.1:1/", "TOKENFLEET_WEBHOOK_RETRY_S": "0.1"}
        (folder / "store").mkdir()
        hook |= {"TOKENFLEET_WEBHOOK_SECRET_FILE": str(folder / "signing"), "TOKENFLEET_STORE": str(folder / "store")}
        made.start("runner", "batch-runner", TOKENFLEET_REDIS_URL=url("runner"), **hook)
        yield made


async def follow(fleet: Fleet, job: Job) -> str:
    """The text that a follower ends up with."""
    text = ""
    async for event in fleet.follow(job):
        match event:
            case Restart():
                text = ""
            case Tokens():
                text += event.text
    return text


async def chat(fleet: Fleet, content: str, model: str = "echo", **more: Any) -> Job:
    return await fleet.submit(model=model, messages=[{"role": "user", "content": content}], stream=True, **more)


async def bad_requests(fleet: Fleet) -> list[str]:
    """What is said of requests with the canary where it does not belong."""
    message = {"role": "user", "content": CANARY}
    bodies: list[JsonObject] = [
        {"messages": [{**message, "role": CANARY}]},
        {"messages": [message], "temperature": CANARY},
        {"messages": [{**message, CANARY: CANARY}], "max_tokens": 0},
        {"messages": CANARY},
        {"prompt": [CANARY, 5]},
        {"messages": [message], "tools": [{"type": CANARY}], "n": CANARY},
    ]
    told = []
    for body in bodies:
        with pytest.raises(FleetError) as error:
            await fleet.submit(model="echo", body=body)
        told.append(f"{error.value} {error.value.hint}")
    return told


def outside_of_bodies(client: Redis) -> str:
    """The names of all keys, and the values of those that are not there to hold prompts."""
    entries = snapshot.take(client).entries
    shown = (str(entry.value) for name, entry in entries.items() if not any(kind in name for kind in STORED))
    return "\n".join([*entries, *shown])


WRONG = ("refuse", "fail", "break", "garbage", "error")


async def go_wrong(fleet: Fleet) -> tuple[Job, list[str]]:
    """Refused, failed three times, cut off, garbage, an error within the stream, busy or hung until it is cancelled.

    The refused job, and what was told of all of them.
    """
    jobs = [await chat(fleet, f"{word} {CANARY}") for word in WRONG]
    busy, hung = await chat(fleet, f"busy {CANARY}"), await chat(fleet, f"hang {CANARY}")
    await eventually(lambda: is_running(fleet, hung), timeout_s=20)
    outcomes = [await job.result(timeout=60) for job in jobs]
    assert {outcome.state for outcome in outcomes} == {State.FAILED}
    for job in (busy, hung):
        await job.cancel()
    return jobs[0], [str(outcome.error) for outcome in outcomes]


async def crash(fleet: Fleet) -> Job:
    """A job that ends its engine three times; before, vLLM quotes a prompt on its own output."""
    await (await chat(fleet, f"say {CANARY}", model="vllm")).result(timeout=30)
    messages = [{"role": "user", "content": "crash"}, {"role": "user", "content": CANARY}]
    poison = await fleet.submit(model="vllm", messages=messages)
    assert (await poison.result(timeout=90)).error
    return poison


def rows(folder: Path) -> Path:
    """Batch rows that end well, are refused, break off; and lines that no batch takes."""
    bodies: list[JsonObject] = [
        {"messages": [{"role": "user", "content": f"{word} {CANARY}"}]} for word in ("say", "refuse", "break")
    ]
    bodies += [{"messages": CANARY}, {"messages": [{"role": "user", "content": CANARY}], "temperature": CANARY}]
    common = {"method": "POST", "url": "/v1/chat/completions"}
    lines = [dumps({**common, "custom_id": f"r{n}", "body": {"model": "echo", **b}}) for n, b in enumerate(bodies)]
    file = folder / "in.jsonl"
    file.write_bytes(b"\n".join([*lines, f'{{"custom_id": "torn", "body": {{"{CANARY}'.encode()]))
    return file


async def batches(made: Roles, redis: str, folder: Path) -> list[str]:
    """What is told of two batches: one that runs without its bad lines, one that they keep from running."""
    file, store = rows(folder), str(folder / "store")

    async def say(*words: str) -> str:
        where = {"TOKENFLEET_REDIS_URL": redis, "TOKENFLEET_STORE": store}
        return await asyncio.to_thread(made.command, "batch", *words, **where)

    async def run(how: str, ends: str) -> list[str]:
        told = (await say("submit", "-i", str(file), "--on-invalid", how)).split()
        # A word may follow about runners that are not there yet.
        name = next(word for word in told if word.startswith("batch_"))
        watched, shown = await say("watch", name), await say("show", name, "--json")
        assert ends in shown, shown
        return [watched, shown]

    told = await asyncio.gather(run("skip", "completed"), run("fail", "failed"))
    assert holding_the_canary(folder / "store") > 1, "no answer has the canary: the batches show nothing"
    return [*told[0], *told[1], *await asyncio.gather(say("list"), say("validate", str(file)))]


def holding_the_canary(folder: Path) -> int:
    """How many files have it."""
    return sum(path.is_file() and CANARY.encode() in path.read_bytes() for path in folder.rglob("*"))


async def asked(made: Roles, redis: str, refused: Job, poison: Job, waiting: Job) -> list[str]:
    """What the commands say that show jobs, workers and faults."""
    words = [["status"], ["workers", "list", "--json"], ["dead", "list"], ["dead", "show", str(poison), "--json"]]
    words += [["job", str(poison), "--json"], ["job", str(waiting)], ["job", str(refused), "--json"]]
    words += [["explain", str(poison)], ["explain", str(waiting), "--json"], ["submit", "--body", "-"]]
    odd = dumps({"model": "echo", "max_tokens": CANARY}).decode()
    commands = (asyncio.to_thread(made.command, *line, stdin=odd, TOKENFLEET_REDIS_URL=redis) for line in words)
    return list(await asyncio.gather(*commands))


async def test_a_canary_is_seen_by_its_own_client_only(
    server: Server, tmp_path: Path, collector: Collector, caller: Tracer
) -> None:
    settings = Settings(redis_url=url_of(server, "gateway"), redis_patience_s=10)
    async with echoing() as engine, Fleet(settings=settings) as fleet:
        with fleet_of_processes(server, tmp_path, engine, collector) as made, caller.start_as_current_span("request"):
            await fleet.ready("echo", 30)
            await fleet.ready("vllm", 30)
            made.look()
            # Success: the canary went all the way, or this test would show nothing.
            good = await chat(fleet, f"say {CANARY}")
            assert await follow(fleet, good) == f"say {CANARY}"
            refused, told = await go_wrong(fleet)
            made.look()
            poison = await crash(fleet)
            made.look()
            waiting = await chat(fleet, f"say {CANARY}", delay=3600)
            told += await bad_requests(fleet)
            told += await batches(made, server.url.replace("//", "//gateway@"), tmp_path)
            told += await asked(made, server.url.replace("//", "//operator@"), refused, poison, waiting)
            with login(server, "operator") as client:
                told.append(outside_of_bodies(client))
                assert CANARY in str(client.get(keys.body(poison.handle)))
            await waiting.cancel()
            made.scrape()
    texts = made.texts() | {f"told-{number}": text for number, text in enumerate(told)}
    texts |= {f"span-{number}": str(span) for number, span in enumerate(collector.spans)}
    assert {span.name for span in collector.spans} >= {"submit", "assign", "engine", "finish"}
    for role, metric in METRICS.items():
        assert metric in texts[f"metrics of {role}"], f"{role} counted nothing: its page shows nothing"
    assert texts["record.jsonl"]
    assert "attempt_failed" in texts["echo.log"]
    assert "vllm_command" in texts["vllm.log"]
    assert "--served-model-name" in texts["ps"]
    assert any("struck_out" in text for text in told)
    assert "webhook" in texts["runner.log"]
    for hidden in (CANARY, PASSWORD, PASSWORD.replace(" ", "%20"), KEY, SIGNING):
        assert [name for name, text in texts.items() if hidden in text] == [], hidden


async def is_running(fleet: Fleet, job: Job) -> bool:
    return (await fleet.job(job)).record.state is State.RUNNING
