"""`tokenfleet up` as a process of its own, with the simulated engine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

END_S = 20


@dataclass
class Up:
    """A running `up`: what it announced, and its whole family."""

    process: "subprocess.Popen[str]"
    said: dict[str, Any]
    family: list[psutil.Process]

    def all_gone(self) -> bool:
        """Whether every process of the family ends."""
        _, alive = psutil.wait_procs(self.family, timeout=END_S)
        return not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@contextmanager
def up(data: Path, *options: str) -> Iterator[Up]:
    """Run it until the block ends, however hard that is."""
    command = [sys.executable, "-m", "tokenfleet", "up", "--engine", "sim", "--json", "--data", str(data), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout
            said = json.loads(process.stdout.readline())
            yield Up(process, said, psutil.Process(process.pid).children(recursive=True))
        finally:
            process.kill()
