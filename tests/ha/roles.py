"""Our roles as processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from producer.events import Restart, Tokens, Truncated
from producer.fleet import Fleet
from producer.jobs import Job
from tests.support.servers import dying_with_us

MODEL = "m"


class Role:
    """A process of ours; its log goes to a file."""

    def __init__(self, log: Path, url: str, *words: str, **settings: object) -> None:
        self._log = log
        env = os.environ | {f"TOKENFLEET_{name.upper()}": str(value) for name, value in settings.items()}
        env |= {"TOKENFLEET_REDIS_URL": url, "TOKENFLEET_LOG_FORMAT": "json"}
        command = [*dying_with_us(), sys.executable, "-m", "tokenfleet", *words]
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, env=env, stdout=out, stderr=out)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def told(self, event: str) -> int:
        """How many lines of its log are about `event`."""
        return self._log.read_text().count(f'"event": "{event}"')

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)


class Cast:
    """All roles of one test; they end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._roles = folder, list[Role]()

    def scheduler(self, url: str, **settings: object) -> Role:
        return self._add(url, "scheduler", **settings)

    def worker(self, url: str, *flags: str, **settings: object) -> Role:
        engine = ("--engine", "sim", "--model", MODEL)
        return self._add(url, "worker", *engine, *flags, **settings)

    def _add(self, url: str, *words: str, **settings: object) -> Role:
        role = Role(self._folder / f"{words[0]}-{len(self._roles)}.log", url, *words, **settings)
        self._roles.append(role)
        return role

    def end(self) -> None:
        for role in self._roles:
            role.kill()


@contextmanager
def on_stage(folder: Path) -> Iterator[Cast]:
    cast = Cast(folder)
    try:
        yield cast
    finally:
        cast.end()


async def read(fleet: Fleet, job: Job) -> str:
    """The text that a follower ends up with."""
    text = ""
    async for event in fleet.follow(job):
        assert not isinstance(event, Truncated)
        if isinstance(event, Restart):
            text = ""
        elif isinstance(event, Tokens):
            text += event.text
    return text
