"""vLLM as a child: a process that stands in for it, with everything around it real."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import structlog

from protocol.errors import SetupError
from tests.house.tree import ROOT
from tests.support.waiting import eventually
from tests.worker.engine.attempts import chat, collect
from worker.engine.base import Capacity, EngineDead, EngineLoad
from worker.engine.options import EngineOptions
from worker.engine.vllm.engine import VllmEngine
from worker.engine.vllm.flags import STREAM_INTERVAL

PATH = f"{ROOT}{os.pathsep}{Path(__file__).with_name('path')}"


@pytest.fixture(autouse=True)
def _a_vllm_is_found_and_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", PATH)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    assert list(tmp_path.glob("tokenfleet-*")) == []


def options(*arguments: str, **more: float) -> EngineOptions:
    return EngineOptions(model="m", arguments=arguments, **more)  # type: ignore[arg-type] # only seconds


@pytest.fixture
async def engine() -> AsyncIterator[VllmEngine]:
    built = VllmEngine(options("--say", "Starting to load model m..."))
    yield built
    await built.close()


def tree(pid: int | None = None) -> list[psutil.Process]:
    """The guard, the server and its engine; other children of this process are the suite's own servers."""
    guards = [child for child in psutil.Process(pid).children() if guards_vllm(child)]
    return [process for guard in guards for process in (guard, *guard.children(recursive=True))]


def guards_vllm(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any(argument.endswith("guard.py") for argument in process.cmdline())
    return False


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    def lives(process: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return process.status() != psutil.STATUS_ZOMBIE
        return False

    return [process for process in processes if lives(process)]


async def whole_tree(pid: int | None = None) -> list[psutil.Process]:
    """All three, once they are there."""
    return await eventually(lambda: found if len(found := tree(pid)) == 3 else [], 20)


async def all_gone(processes: list[psutil.Process]) -> None:
    await eventually(lambda: not alive(processes))


async def test_it_comes_up_and_answers_and_leaves_nothing(engine: VllmEngine) -> None:
    with structlog.testing.capture_logs() as logs:
        assert await engine.start() == Capacity(
            4, 2048, 1600, 16, ("m",), stream_tokens=STREAM_INTERVAL, continues_chats=True
        )
    processes = tree()
    assert len(processes) == 3
    assert (await collect(engine, chat("Hi")))[-1]["usage"]["prompt_tokens"] == 32
    assert (await engine.load()).resident_bytes > 1_000_000
    command, phase = logs
    assert (command["event"], phase["event"], phase["phase"]) == ("vllm_command", "vllm_loading", "loading weights")
    assert "--scheduling-policy priority" in command["command"]
    assert "VLLM_API_KEY" not in command["command"]
    await engine.close()
    assert alive(processes) == []
    assert await engine.load() == EngineLoad()
    assert "not running" in await engine.wait_dead()


async def test_what_it_writes_once_it_is_up_is_dropped(engine: VllmEngine) -> None:
    await engine.start()
    with structlog.testing.capture_logs() as logs:
        await collect(engine, chat("say Loading weights of a secret"))
        with pytest.raises(EngineDead):
            await collect(engine, chat("crash"))
        await engine.start()
    assert "secret" not in str(logs)
    assert [entry["event"] for entry in logs] == ["vllm_command", "vllm_loading"]


async def test_an_end_with_code_0_is_a_death_and_it_starts_again(engine: VllmEngine) -> None:
    await engine.start()
    processes = tree()
    with pytest.raises(EngineDead) as caught:
        await collect(engine, chat("crash"))
    assert caught.value.reached
    # Whichever is noticed first.
    reasons = (
        "vLLM ended with code 0",
        "its server is not well any more",
        "the engine answered 500, and it does not answer",
    )
    assert (await asyncio.wait_for(engine.wait_dead(), 5)).startswith(reasons)
    await all_gone(processes)
    with pytest.raises(EngineDead):
        await collect(engine, chat("Hi"))
    await engine.start()
    assert await collect(engine, chat("Hi"))


@pytest.mark.parametrize("victim", [0, 1], ids=["guard", "server"])
async def test_nothing_survives_a_part_that_is_killed(engine: VllmEngine, victim: int) -> None:
    await engine.start()
    processes = tree()
    processes[victim].send_signal(signal.SIGKILL)
    assert "signal 9" in await asyncio.wait_for(engine.wait_dead(), 5)
    await all_gone(processes)


@pytest.mark.parametrize("arguments", [[], ["--hang"]], ids=["serving", "loading"])
def test_nothing_survives_a_worker_that_is_killed(arguments: list[str]) -> None:
    code = (
        "import asyncio, sys\n"
        "from worker.engine.options import EngineOptions\n"
        "from worker.engine.vllm.engine import VllmEngine\n"
        "asyncio.run(VllmEngine(EngineOptions(model='m', arguments=tuple(sys.argv[1:]))).start())\n"
    )
    command = [sys.executable, "-c", f"{code}input()", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as worker:
        processes = asyncio.run(whole_tree(worker.pid))
        worker.kill()
    asyncio.run(all_gone(processes))


async def test_a_start_can_be_cancelled() -> None:
    engine = VllmEngine(options("--hang"))
    starting = asyncio.ensure_future(engine.start())
    processes = await whole_tree()
    starting.cancel()
    with suppress(asyncio.CancelledError):
        await starting
    assert alive(processes) == []
    await engine.close()


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (
            ["--end", "1", "--say", "ValueError: No available memory for the cache blocks."],
            "No available",
            "-model-len",
        ),
        (["--end", "137"], "signal 9", "--tensor-parallel-size"),
        (["--end", "1", "--say", "OSError: x is not a local folder"], "local folder", "HF_TOKEN"),
        (["--end", "1", "--say", "python: No module named vllm"], "No module", "--vllm-python"),
        (["--end", "1", "--say", "OSError: Address already in use"], "in use", "port"),
        (["--wrong"], "unrecognized arguments: --wrong", "flags after"),
    ],
)
async def test_what_can_be_corrected_is_said(arguments: list[str], message: str, hint: str) -> None:
    engine = VllmEngine(options(*arguments))
    with pytest.raises(SetupError, match=message) as caught:
        await engine.start()
    assert hint in caught.value.hint
    assert tree() == []


async def test_an_unknown_end_shows_the_last_errors() -> None:
    engine = VllmEngine(options("--end", "0", "--say", "RuntimeError: new", "--say", "INFO 11-29 20:01:09 [a.py:1] no"))
    with pytest.raises(EngineDead, match=r"ended with code 0 / RuntimeError: new$") as caught:
        await engine.start()
    assert not caught.value.reached


async def test_a_taken_port_is_bad_luck_once(tmp_path: Path) -> None:
    engine = VllmEngine(options("--taken-once", str(tmp_path / "taken")))
    with structlog.testing.capture_logs() as logs:
        await engine.start()
    commands = [entry["command"] for entry in logs if entry["event"] == "vllm_command"]
    assert len(set(commands)) == 2
    await engine.close()


async def test_after_a_death_the_same_failure_is_no_reason_to_give_up(engine: VllmEngine) -> None:
    await engine.start()
    engine._options = options("--end", "1", "--say", "torch.OutOfMemoryError: CUDA out of memory")
    with pytest.raises(EngineDead, match="out of memory"):
        await engine.start()


async def test_a_silent_start_is_given_up() -> None:
    engine = VllmEngine(options("--hang", start_silence_s=0.3))
    with pytest.raises(EngineDead, match=r"silent for 0\.3 s"):
        await engine.start()
    assert tree() == []


async def test_an_interpreter_that_is_none_is_named() -> None:
    engine = VllmEngine(EngineOptions(model="m", python=Path("/nowhere/python")))
    with pytest.raises(SetupError, match="/nowhere/python"):
        await engine.start()
    await engine.close()
