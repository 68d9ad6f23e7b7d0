"""Engines that crash, hang, refuse, or talk nonsense: a server that speaks like one, behind a worker process."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from aiohttp import web

from producer.dead import list_dead
from producer.jobs import Job
from protocol.messages import Outcome
from protocol.states import State
from tests.faults.matrix import Fault, Seen
from tests.faults.stage import Stage, now, read, undisturbed
from tests.support.nursery import ROOT
from tests.support.waiting import eventually
from tests.worker.engine.vllm.stand_in import DONE, END, HELLO, Play, StandIn, said, streams

STALL_S = 1.0
TRIES = 3
FAKE_VLLM = Path("tests/worker/engine/vllm/path")
AS_TOLD = "Hello"
ON, PING = said("on "), b": ping\n\n"
MANY_BYTES = "naïve 🎉 漢字 ünï"


class Endless:
    """Streams until the client leaves; `gone` is set then."""

    def __init__(self, line: bytes = ON) -> None:
        self.line = line
        self.gone = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            while True:
                await response.write(self.line)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await self.gone.wait()
        except (ConnectionError, asyncio.CancelledError):
            self.gone.set()
            raise


def answers(status: int, **headers: str) -> Play:
    async def play(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "in the engine's words"}}, status=status, headers=headers)

    return play


async def silent(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


def first(*plays: Play) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """One after the other; the last one again and again."""
    left = list(plays)

    async def play(request: web.Request) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    return play


async def serve(stage: Stage, play: Play) -> tuple[StandIn, str]:
    """A server that plays, and its address."""
    stand_in = StandIn(play=play)
    runner = web.AppRunner(stand_in.app(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    stage.closing(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return stand_in, f"http://127.0.0.1:{runner.addresses[0][1]}"


def attach(stage: Stage, url: str, label: str = "w1") -> None:
    """A worker whose engine is that server."""
    stage.worker_on(("--engine", "openai", "--attach", url), label, env={"TOKENFLEET_ENGINE_STALL_S": str(STALL_S)})


async def behind(stage: Stage, play: Play, workers: int = 1) -> StandIn:
    """A fleet whose workers use one server, which plays."""
    stand_in, url = await serve(stage, play)
    stage.scheduler()
    for number in range(workers):
        attach(stage, url, f"w{number + 1}")
    await stage.active(workers)
    return stand_in


async def chat(stage: Stage, content: str = "hi", own_id: str = "", **how: Any) -> Job:
    return await stage.submit(own_id, prompt=None, messages=[{"role": "user", "content": content}], **how)


async def refuses(stage: Stage) -> Seen:
    stand_in = await behind(stage, answers(400))
    outcome = await (await chat(stage)).result(timeout=10)
    assert (outcome.state, outcome.status_code, outcome.attempt) == (State.FAILED, 400, 1), outcome
    assert "in the engine's words" in str(outcome.body), "the engine's words are lost"
    assert len(stand_in.bodies) == 1
    return Seen("failed at once, with the engine's own words")


async def fails(stage: Stage, play: Play, *, speaks: bool) -> Seen:
    stand_in = await behind(stage, play)
    job = await chat(stage)
    reading = asyncio.create_task(read(stage.fleet, job))
    outcome = await job.result(timeout=15)
    seen = await reading
    record = (await job.info()).record
    assert (outcome.state, record.error) == (State.FAILED, "engine_error"), outcome
    assert len(stand_in.bodies) == TRIES, f"{len(stand_in.bodies)} attempts"
    assert record.strikes == 0, "its server lives: no strike"
    assert bool(seen.text) is speaks, "what came was not kept" if speaks else "text came from nowhere"
    return Seen(f"failed after {TRIES} attempts" + (", what came was shown and sealed as failed" if speaks else ""))


async def never_ends(stage: Stage, line: bytes) -> Seen:
    endless = Endless(line)
    await behind(stage, endless)
    job = await chat(stage, time_limit=1)
    reading = asyncio.create_task(read(stage.fleet, job))
    began_at = now()
    outcome = await job.result(timeout=10)
    async with asyncio.timeout(5):
        await endless.gone.wait()
    seen = await reading
    assert (outcome.state, outcome.error and outcome.error.code) == (State.FAILED, "request_timeout"), outcome
    assert bool(seen.text) is (line == ON), "what came was not kept"
    return Seen("ended at its time limit and aborted; what came was shown and sealed as failed", now() - began_at)


async def splits_characters(stage: Stage) -> Seen:
    chunks = b"".join((said(MANY_BYTES), END, DONE))
    await behind(stage, streams(*(chunks[at : at + 1] for at in range(len(chunks)))))
    job = await chat(stage)
    outcome = await undisturbed(job, asyncio.create_task(read(stage.fleet, job)))
    assert outcome.text == MANY_BYTES, outcome.text
    return Seen("every character whole, byte by byte")


async def hangs(stage: Stage) -> Seen:
    await behind(stage, first(silent, HELLO))
    began_at = now()
    job = await chat(stage)
    outcome = await undisturbed(job, asyncio.create_task(read(stage.fleet, job)))
    assert outcome.text == AS_TOLD
    return Seen(f"given up after {STALL_S:g} s without a token; the next attempt answered", now() - began_at)


async def worker_stopped(stage: Stage) -> Seen:
    """The engine's side of a worker that was stopped past its lease."""
    endless = Endless()
    await behind(stage, first(endless, HELLO))
    sleeper = stage.roles[-1]
    job = await chat(stage)
    await stage.running(job)
    sleeper.pause()
    await eventually(lambda: _is(job, State.QUEUED), 10)
    sleeper.resume()
    woke_at = now()
    async with asyncio.timeout(5):
        await endless.gone.wait()
    outcome = await job.result(timeout=15)
    assert outcome.text == AS_TOLD
    return Seen("its engine call was aborted as soon as it woke up", now() - woke_at)


async def _is(job: Job, state: State) -> bool:
    return (await job.info()).record.state is state


def _vllm(stage: Stage, label: str = "w1") -> None:
    path = f"{ROOT}:{ROOT / FAKE_VLLM}"
    stage.worker_on(("--engine", "vllm"), label, slots=4, env={"PYTHONPATH": path, "TMPDIR": str(stage.folder)})


async def dies(stage: Stage) -> Seen:
    """As the system kills it that ran out of memory."""
    stage.scheduler()
    _vllm(stage)
    await stage.active(timeout_s=30)
    there = stage.folder / "memory"
    job = await chat(stage, f"wait {there}")
    await eventually(lambda: _is(job, State.RUNNING), 10)
    server = next(p for p in psutil.Process(stage.roles[-1].pid).children(recursive=True) if _serves(p))
    server.send_signal(signal.SIGKILL)
    died_at = now()
    await eventually(lambda: _state_is(stage, "unhealthy"), 10)
    there.touch()
    await eventually(lambda: _state_is(stage, "active"), 20)
    recovery_s = now() - died_at
    outcome = await job.result(timeout=20)
    record = (await job.info()).record
    assert (outcome.state, record.strikes) == (State.COMPLETED, 1), record
    return Seen("its worker was unhealthy, started it again, and the job ran", recovery_s)


def _serves(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        words = process.cmdline()
        return any("api_server" in word for word in words) and not any(word.endswith("guard.py") for word in words)
    return False


async def _state_is(stage: Stage, state: str) -> bool:
    return [worker.state for worker in await stage.workers()] == [state]


async def poison_kills_engines(stage: Stage) -> Seen:
    stage.scheduler()
    _vllm(stage)
    await stage.active(timeout_s=30)
    neighbours = [await chat(stage, f"n{n}") for n in range(3)]
    poison = await chat(stage, "crash", "poison")
    neighbours += [await chat(stage, f"m{n}") for n in range(3)]
    began_at = now()
    outcome = await poison.result(timeout=60)
    return await _set_aside(stage, poison, outcome, neighbours, began_at)


async def poison_kills_workers(stage: Stage) -> Seen:
    short = {"TOKENFLEET_LEASE_S": "1"}
    stage.scheduler(env=short)
    for number in range(4):
        stage.worker(f"w{number}", env=short, failpoints="worker.before_engine:poison=kill")
    await stage.active(4)
    poison = await stage.submit("poison", words=20)
    neighbours = [await stage.submit(f"n{n}", words=60) for n in range(8)]
    began_at = now()
    outcome = await poison.result(timeout=30)
    seen = await _set_aside(stage, poison, outcome, neighbours, began_at)
    dead = sum(role.code is not None for role in stage.roles)
    assert dead == 3, f"{dead} workers died"
    return seen


async def _set_aside(stage: Stage, poison: Job, outcome: Outcome, neighbours: list[Job], began_at: float) -> Seen:
    recovery_s = now() - began_at
    assert outcome.error is not None, outcome
    assert outcome.error.code == "struck_out", outcome
    ends = [(await job.result(timeout=30)).state for job in neighbours]
    assert set(ends) == {State.COMPLETED}, ends
    dead = [entry.handle for entry in await list_dead(stage.fleet.redis)]
    assert dead == [poison.handle], dead
    return Seen(f"set aside after three; {len(neighbours)} neighbours completed", recovery_s)


ROWS = (
    Fault("the engine's process is killed, as for want of memory", "requeue; unhealthy, restarted", dies),
    Fault("the engine hangs while its health says 200", "a watchdog ends the attempt", hangs),
    Fault(
        "a supervised vLLM hangs while its health says 200",
        "killed by its worker's watchdog",
        tests=("tests/worker/engine/vllm/test_engine.py::test_a_hung_engine_is_dead_although_it_is_well",),
    ),
    Fault("the engine answers 400", "terminal, the engine's words kept", refuses),
    Fault("the engine answers 500", "bounded retries", partial(fails, play=answers(500), speaks=False)),
    Fault(
        "a truncated event stream",
        "bounded error; what came is kept and marked",
        partial(fails, play=streams(said("Hel"), said("lo")), speaks=True),
    ),
    Fault(
        "garbage in an event stream",
        "bounded error; what came is kept and marked",
        partial(fails, play=streams(said("Hel"), b"data: {nonsense\xff\n\n"), speaks=True),
    ),
    Fault("an endless event stream", "bounded error; what came is kept and marked", partial(never_ends, line=ON)),
    Fault("comments without an end", "ended by the time limit", partial(never_ends, line=PING)),
    Fault("UTF-8 split across chunks", "no replacement characters", splits_characters),
    Fault("SIGSTOP of a worker past its lease: its engine", "its engine calls are aborted", worker_stopped),
    Fault("a job that kills its worker", "set aside after three; neighbours complete", poison_kills_workers),
    Fault("a job that kills its engine", "set aside after three; neighbours complete", poison_kills_engines, slow=True),
    Fault(
        "malformed entries written straight into Redis",
        "quarantined; never blocks",
        tests=(
            "tests/scheduler/test_faults.py::test_an_entry_without_a_job_is_removed",
            "tests/scheduler/test_faults.py::test_entries_without_jobs_do_not_hide_the_lane",
            "tests/scheduler/test_faults.py::test_a_job_that_cannot_be_read_is_set_aside",
            "tests/scheduler/test_faults.py::test_a_key_of_another_type_stops_nobody",
            "tests/worker/test_worker.py::test_a_body_that_can_t_be_read_fails_its_job_alone",
            "tests/worker/test_worker.py::test_what_is_written_into_the_inbox_by_hand_blocks_nothing",
        ),
    ),
)
