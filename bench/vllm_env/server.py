"""A vLLM server of one's own, for the length of a block."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self
from urllib.error import URLError
from urllib.request import urlopen

from tokenfleet.up.ports import free_port

START_S = 180.0
POLL_S = 0.1
STOP_S = 20.0
KV_GIB = 1
"""Host memory of one server's KV cache."""


def server_environment(core: int | None = None) -> dict[str, str]:
    """What vLLM needs in its environment on a CPU; with `core`, its engine computes on that core alone."""
    told = {
        "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_SERVER_DEV_MODE": "1",
    }
    if core is not None:
        told["VLLM_CPU_OMP_THREADS_BIND"] = str(core)
    return os.environ | told


class Served:
    """`vllm serve` as a child process.

    Attributes:
        url: where it listens, without `/v1`.
        pid: its API server; the engine is a child of it.
    """

    def __init__(
        self, python: Path, model: Path, name: str, flags: Sequence[str] = (), *, core: int | None = None
    ) -> None:
        """Start nothing yet."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.pid = 0
        where = ["--host", "127.0.0.1", "--port", str(port)]
        module = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
        self._command = [*module, "--model", str(model), "--served-model-name", name, *where, *flags]
        self._core = core
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it and wait until it answers."""
        self._log = tempfile.TemporaryFile()
        env = server_environment(self._core)
        # Apart from our own group, so that its engine's process can be ended with it.
        self._process = subprocess.Popen(
            self._command, env=env, stdout=self._log, stderr=self._log, start_new_session=True
        )
        self.pid = self._process.pid
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self) -> None:
        give_up = time.monotonic() + START_S
        while not self._answers():
            if time.monotonic() > give_up or (self._process and self._process.poll() is not None):
                raise SystemExit(f"vLLM did not come up; its last words:\n{self._last_words()}")
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/health", timeout=5) as answer:  # noqa: S310 - our own loopback address
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-3000:]

    def __exit__(self, *_: object) -> None:
        """End it, and the engine's process with it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                print("vLLM did not end in time; it is killed", file=sys.stderr)
            _kill_session(self._process.pid)
            self._process.wait()
        if self._log is not None:
            self._log.close()


def _kill_session(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return
