"""A real Chromium on the live page, a real fleet with the simulated engine, and a large one that is made up."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import expect

from bench.page.browser import AXE
from tests.gateway.serving import MODEL, Served, serving
from tests.support.nursery import ROOT
from tests.tokenfleet.running import up

REQUIRED = "TOKENFLEET_REQUIRE_BROWSER"
IMAGES = "TOKENFLEET_IMAGES"
"""Where screenshots go that are to be kept."""
# As long as the page's own steps may take: five seconds are too few on a machine that does other work too.
expect.set_options(timeout=60_000)


def needed(there: object, what: str) -> None:
    """Skip what can't be run here, unless all must."""
    if not there and os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED} is set, but there is no {what}")
    if not there:
        pytest.skip(f"no {what}")


@pytest.fixture(scope="session")
def chromium() -> None:
    needed(shutil.which("chromium"), "chromium on the path: apt-get install chromium")


@pytest.fixture(scope="session")
def axe() -> None:
    needed(AXE.exists(), "axe-core: npm ci --prefix tests/page")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """The folder of the screenshots."""
    kept = os.environ.get(IMAGES)
    folder = ROOT / kept if kept else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def sim_url(chromium: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Redis of a fleet with two workers."""
    with up(tmp_path_factory.mktemp("fleet"), "--model", MODEL, "--slots", "8") as running:
        yield running.said["redis_url"]


@pytest.fixture
async def sim(sim_url: str) -> AsyncIterator[Served]:
    """A gateway in front of that fleet, open to everybody."""
    async with serving(sim_url) as served:
        yield served
