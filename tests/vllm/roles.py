"""Processes of a fleet, and what runs below a worker: vLLM's server and its engine."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.vllm_env.models import PYTHON
from protocol.wire import JsonObject, loads
from tests.support.servers import dying_with_us

STOP_S = 30.0
CPU_BUILD = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
"""GiB of the KV cache; and no look at the network for a model that is here."""
DUMMY = ("--load-format", "dummy", "--dtype", "bfloat16", "--enforce-eager")
"""Flags of the tiny model."""


@dataclass
class Role:
    """`tokenfleet …` as a process; its log is a file of JSON lines."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def events(self, name: str) -> list[JsonObject]:
        """What it has logged under this name."""
        lines = [line for line in self.log.read_bytes().splitlines() if line.startswith(b"{")]
        return [event for event in map(loads, lines) if event.get("event") == name]

    def words(self) -> str:
        """All that it wrote; the logs of our roles hold no prompts."""
        return self.log.read_text(errors="replace")

    def family(self) -> list[psutil.Process]:
        """All processes below it."""
        return psutil.Process(self.pid).children(recursive=True)

    def engine(self) -> "EngineProcesses":
        """vLLM, as it runs now."""
        return EngineProcesses.below(self)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(STOP_S)

    def terminate(self, seconds: float = STOP_S) -> int:
        """SIGTERM; its exit code."""
        self.process.terminate()
        return self.process.wait(seconds)


@dataclass(frozen=True)
class EngineProcesses:
    """vLLM's processes below a worker."""

    server: psutil.Process
    core: psutil.Process
    everything: list[psutil.Process] = field(repr=False)

    @classmethod
    def below(cls, worker: Role) -> "EngineProcesses":
        family = worker.family()
        server = next(process for process in family if "vllm.entrypoints" in " ".join(process.cmdline()[1:4]))
        core = next(process for process in server.children() if process.name().startswith("VLLM::EngineCor"))
        return cls(server, core, family)

    @property
    def socket(self) -> str:
        """The path where the server listens."""
        command = self.server.cmdline()
        return command[command.index("--uds") + 1]

    @property
    def api_key(self) -> str:
        return self.server.environ()["VLLM_API_KEY"]

    def pause_core(self) -> None:
        """Freeze the engine; its server still answers."""
        self.core.send_signal(signal.SIGSTOP)


def gone(processes: Sequence[psutil.Process], seconds: float) -> bool:
    """Whether all of them end within this time."""
    _, alive = psutil.wait_procs(list(processes), timeout=seconds)
    return not alive


@contextmanager
def running(log: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[Role]:
    """`tokenfleet …` for the length of a block; nothing of it is left then, nor after the test process was killed."""
    command = [*dying_with_us(), sys.executable, "-m", "tokenfleet", *arguments]
    told = {"TOKENFLEET_LOG_FORMAT": "json", **environment}
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | told, stdout=output, stderr=output)
    role = Role(process, log)
    try:
        yield role
    finally:
        family = role.family() if process.poll() is None else []
        for _ in range(2):
            process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            role.kill()
        assert gone(family, STOP_S), "a process outlived its worker"


def vllm_arguments(model: str, folder: Path, label: str, options: Sequence[str], flags: Sequence[str]) -> list[str]:
    """`worker --engine vllm …` that serves the weights in `folder` under the name `model`."""
    start = ["worker", "--engine", "vllm", "--vllm-python", str(PYTHON), "--model", model, "--label", label]
    return [*start, *options, "--", "--model", str(folder), *flags]
