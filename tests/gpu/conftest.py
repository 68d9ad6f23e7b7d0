"""One standby worker with a real vLLM on a real GPU, beside a server and a scheduler, for the whole session."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from producer.fleet import Fleet
from producer.workers import read_roster
from protocol.messages import WorkerRecord
from protocol.settings import Settings
from protocol.states import WorkerState
from tests.support.servers import Server, valkey_binary
from tests.support.waiting import eventually

MODEL = os.environ.get("TOKENFLEET_VLLM_MODEL", "HuggingFaceTB/SmolLM2-135M-Instruct")
"""A name on the hub or a folder."""
PYTHON = os.environ.get("TOKENFLEET_VLLM_PYTHON", sys.executable)
"""The interpreter that has vLLM."""
FLAGS = os.environ.get("TOKENFLEET_VLLM_FLAGS", "--gpu-memory-utilization 0.5").split()
"""More flags of `vllm serve`."""
LABEL = "gpu"
START_S = 900.0
"""A first start downloads the model and compiles kernels."""
STOP_S = 60.0


@dataclass(frozen=True)
class GpuFleet:
    """Where it is, and its worker's process."""

    url: str
    process: "subprocess.Popen[bytes]"

    def connect(self) -> Fleet:
        """A client; use it as `async with`."""
        return Fleet(settings=Settings(redis_url=self.url))

    async def worker(self, fleet: Fleet, state: WorkerState, timeout_s: float = STOP_S) -> WorkerRecord:
        """The worker, once it is in this state."""

        async def find() -> WorkerRecord | None:
            if self.process.poll() is not None:
                pytest.fail(f"the worker ended with exit code {self.process.returncode}: see its log above")
            records = [entry.record for entry in (await read_roster(fleet.redis)).workers]
            return next((record for record in records if (record.label, record.state) == (LABEL, state)), None)

        found = await eventually(find, timeout_s)
        assert found
        return found


@contextmanager
def role(url: str, arguments: Sequence[str]) -> "Iterator[subprocess.Popen[bytes]]":
    """`tokenfleet …` for the length of a block; its log goes to stderr."""
    environment = os.environ | {"TOKENFLEET_REDIS_URL": url}
    process = subprocess.Popen([sys.executable, "-m", "tokenfleet", *arguments], env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=STOP_S)


@pytest.fixture(scope="session")
def gpu_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    server = Server(valkey_binary(), tmp_path_factory.mktemp("gpu"), append_only=True)
    server.start()
    server.load_library()
    worker = ["worker", "--engine", "vllm", "--model", MODEL, "--vllm-python", PYTHON, "--label", LABEL, "--standby"]
    with ExitStack() as stack:
        stack.callback(server.stop)
        stack.enter_context(role(server.url, ["scheduler"]))
        process = stack.enter_context(role(server.url, [*worker, "--", "--enable-sleep-mode", *FLAGS]))
        fleet = GpuFleet(server.url, process)
        asyncio.run(_loaded(fleet))
        yield fleet


async def _loaded(fleet: GpuFleet) -> None:
    async with fleet.connect() as client:
        await fleet.worker(client, "warm", START_S)
