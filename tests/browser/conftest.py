"""A real browser, and the example web backend on a fleet of real processes."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, async_playwright

from producer.fleet import Fleet
from protocol.settings import Settings
from tests.support.nursery import ROOT, Nursery
from tests.support.servers import Server, dying_with_us, free_port, valkey_binary
from tests.support.waiting import eventually

REQUIRED = "TOKENFLEET_REQUIRE_BROWSER"
MODEL = "m"
SPEED = "0.15"
"""Of the simulated engine: about 20 tokens a second, so that an answer takes seconds."""
START_S = 60.0


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's path."""
    found = shutil.which("chromium")
    if found is None and os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED} is set, but there is no chromium")
    if found is None:
        pytest.skip("no chromium on the path: apt-get install chromium")
    return found


@pytest.fixture
async def page(chromium: str) -> AsyncIterator[Page]:
    """An empty page. Its browser trusts the page: as root, Chromium has no sandbox."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page()
        page.set_default_timeout(START_S * 1_000)
        yield page
        await browser.close()


@pytest.fixture(scope="session")
def redis_url(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Redis of a fleet whose only worker is slow."""
    folder = tmp_path_factory.mktemp("fleet")
    server = Server(valkey_binary(), folder)
    server.start()
    env = {"TOKENFLEET_REDIS_URL": server.url}
    with Nursery() as nursery:
        nursery.fork(["scheduler"], env, folder / "scheduler.log")
        worker = ["worker", "--model", MODEL, "--engine", "sim", "--sim-speed", SPEED]
        nursery.fork(worker, env, folder / "worker.log")
        yield server.url
    server.stop()


@pytest.fixture
async def fleet(redis_url: str) -> AsyncIterator[Fleet]:
    """A client of that fleet, which can serve."""
    async with Fleet(settings=Settings(redis_url=redis_url)) as fleet:
        await fleet.ready(MODEL, START_S)
        yield fleet


@dataclass
class Backend:
    """The example's process."""

    redis_url: str
    log: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        """Start it and wait until it answers."""
        self._begin()
        await eventually(self._answers, START_S)

    def _begin(self) -> None:
        command = [sys.executable, "-m", "uvicorn", "--app-dir", "examples/web", "app:app", "--port", str(self.port)]
        env = os.environ | {"TOKENFLEET_REDIS_URL": self.redis_url, "MODEL": MODEL, "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*dying_with_us(), *command], cwd=ROOT, env=env, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)

    async def _answers(self) -> bool:
        async with httpx.AsyncClient(trust_env=False) as http:
            try:
                return (await http.get(self.url)).status_code == 200
            except httpx.TransportError:
                return False


@pytest.fixture
async def backend(redis_url: str, fleet: Fleet, tmp_path: Path) -> AsyncIterator[Backend]:
    """The example on that fleet."""
    del fleet
    with ended(Backend(redis_url, tmp_path / "backend.log", free_port())) as backend:
        await backend.start()
        yield backend


@contextmanager
def ended(backend: Backend) -> Iterator[Backend]:
    try:
        yield backend
    finally:
        backend.kill()
