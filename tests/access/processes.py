"""Roles as processes of their own, and everything that others on the machine can see of them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import psutil

from tests.support.servers import dying_with_us, free_port

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "worker" / "engine" / "vllm" / "path"
END_S = 30


@dataclass
class Roles:
    """What runs, what it wrote, the command lines that were seen, and what it answered Prometheus last."""

    folder: Path
    environment: Mapping[str, str]
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    ports: dict[str, int] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)

    def start(self, name: str, *arguments: str, **more: str) -> None:
        """`tokenfleet ARGUMENTS`, with more variables; all that it says goes to a file."""
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [*dying_with_us(), sys.executable, "-m", "tokenfleet", *arguments]
            self.ports[name] = free_port()
            metrics = {"TOKENFLEET_METRICS_PORT": str(self.ports[name])}
            environment = {**os.environ, **self.environment, **metrics, **more}
            self.running[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self.folder)

    def look(self) -> None:
        """Note the command lines of all roles and of their children, as `ps` shows them."""
        for role in self.running.values():
            mother = psutil.Process(role.pid)
            for one in [mother, *mother.children(recursive=True)]:
                # A child may end in between.
                with suppress(psutil.NoSuchProcess):
                    self.seen.add(" ".join(one.cmdline()))

    def scrape(self) -> None:
        """Note the metrics of all roles."""
        for name, port in self.ports.items():
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=END_S) as answer:
                self.pages[f"metrics of {name}"] = answer.read().decode()

    def command(self, *arguments: str, stdin: str = "", **more: str) -> str:
        """What a command prints, to both of its outputs."""
        done = subprocess.run(
            [sys.executable, "-m", "tokenfleet", *arguments],
            env={**os.environ, **self.environment, **more},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
        )
        return done.stdout + done.stderr

    def stop(self) -> None:
        """Let all of them end."""
        for role in self.running.values():
            role.terminate()
        for role in self.running.values():
            try:
                role.wait(END_S)
            finally:
                role.kill()

    def texts(self) -> dict[str, str]:
        """All that they wrote, by the name of the file, what they answered Prometheus, and what `ps` showed."""
        written = {path.name: path.read_text(errors="replace") for path in self.folder.iterdir() if path.is_file()}
        return written | self.pages | {"ps": "\n".join(sorted(self.seen))}


@contextmanager
def roles(folder: Path, environment: Mapping[str, str]) -> Iterator[Roles]:
    made = Roles(folder, environment)
    try:
        yield made
    finally:
        made.stop()
