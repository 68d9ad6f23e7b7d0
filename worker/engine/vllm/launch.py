"""Brings vLLM's server up as a child: socket, key, command, progress, and what to do when it does not come up."""

import asyncio
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import SetupError
from protocol.log import get_logger
from worker.engine.base import EngineDead
from worker.engine.openai_http import UNIX, Upstream
from worker.engine.options import EngineOptions
from worker.engine.vllm.child import Child
from worker.engine.vllm.flags import command, environment
from worker.engine.vllm.phases import Cause, Failure, failure_of, phase_of

POLL_S = 0.2
LONGEST_SOCKET = 100
"""Bytes of a socket's path; systems take 103 to 107."""
_log = get_logger("worker")


@dataclass(frozen=True, slots=True)
class Launched:
    """A server that is up."""

    child: Child
    url: str
    api_key: str


class _StartFailed(Exception):
    """The child ended before its server was up."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


async def launch(options: EngineOptions, *, again: bool) -> Launched:
    """Start it and wait until it answers; there is no time limit as long as it says anything.

    Args:
        options: the worker's settings.
        again: whether it ran before: then what fails may be over soon, and the worker tries once more.

    Raises:
        SetupError: something must be corrected first.
        EngineDead: it did not come up.
    """
    try:
        return await _once(options)
    except _StartFailed as error:
        failure = error.failure
    if failure.cause is Cause.PORT:
        # Its processes talk to each other over ports; another program took one of them: once is bad luck.
        _log.warning("vllm_port_taken")
        try:
            return await _once(options)
        except _StartFailed as error:
            failure = error.failure
    if again or failure.cause is Cause.UNKNOWN:
        raise EngineDead(failure.message, reached=False)
    raise SetupError(failure.message, failure.hint)


async def _once(options: EngineOptions) -> Launched:
    python = str(options.python or sys.executable)
    if shutil.which(python) is None:
        raise SetupError(f"there is no interpreter at {python}", "Give the one that has vLLM with --vllm-python.")
    api_key = secrets.token_urlsafe(32)
    # For the sockets of the server and of the KV events, which hold all prompts: nobody else may enter it.
    folder = Path(tempfile.mkdtemp(prefix="tokenfleet-vllm-"))
    socket = str(folder / "http")
    if len(os.fsencode(socket)) > LONGEST_SOCKET:
        raise SetupError(f"the name of the folder for temporary files is too long: {folder.parent}", "Set TMPDIR.")
    parts = command(options, python, socket, f"ipc://{folder / 'kv'}")
    _log.info("vllm_command", command=shlex.join(parts))
    child = await Child.start(folder, parts, environment(os.environ, api_key), _phase_log())
    url = f"{UNIX}{socket}"
    try:
        await _until_up(child, url, options.start_silence_s)
    except BaseException:
        # Nothing runs on it yet, and while it loads vLLM does not hear a polite word.
        child.kill()
        await child.close()
        raise
    child.silence()
    return Launched(child, url, api_key)


async def _until_up(child: Child, url: str, silence_s: float) -> None:
    loop, asks = asyncio.get_running_loop(), Upstream(url)
    ended = asyncio.ensure_future(child.wait())
    try:
        while not ended.done():
            if await asks.health() == 200:
                return
            if loop.time() - child.heard_s > silence_s:
                raise EngineDead(f"vLLM did not come up, and was silent for {silence_s:g} s", reached=False)
            await asyncio.wait([ended], timeout=POLL_S)
        raise _StartFailed(failure_of(ended.result(), child.lines))
    finally:
        ended.cancel()
        await asks.close()


def _phase_log() -> Callable[[str], None]:
    """Logs each phase when it begins; nothing else of vLLM's output is passed on."""
    loop, seen = asyncio.get_running_loop(), set[str]()
    begun_s = loop.time()

    def on_line(line: str) -> None:
        phase = phase_of(line)
        if phase and phase not in seen:
            seen.add(phase)
            _log.info("vllm_loading", phase=phase, after_s=round(loop.time() - begun_s, 1))

    return on_line
