"""Real vLLM on the CPU: few engines, since each takes half a minute to come up, each on a core of its own.

The tests are skipped where there is no interpreter with vLLM; TOKENFLEET_REQUIRE_VLLM=1 makes that a failure.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bench.vllm_env.models import ADAPTER, PYTHON, TINY, tiny_model
from producer.fleet import Fleet
from tests.support.servers import Server, valkey_binary
from tests.vllm.roles import DUMMY
from tests.vllm.site import Plan, Site, Staff
from tests.vllm.straight import Straight, straight

REQUIRE_VLLM = "TOKENFLEET_REQUIRE_VLLM"
LEFT = "left"
"""The adapter that the first worker with the tiny model has loaded."""
BLOCKS = 24
"""Of 128 tokens each, one of which vLLM keeps for itself: two long jobs do not fit."""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if not PYTHON.is_file():
        why = f"there is no interpreter with vLLM at {PYTHON}: make vllm-env, or set TOKENFLEET_VLLM_PYTHON"
        if os.environ.get(REQUIRE_VLLM) == "1":
            pytest.fail(f"{REQUIRE_VLLM} is set, but {why}")
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("vllm")
    server = Server(valkey_binary(), folder)
    server.start()
    try:
        server.load_library()
        place = Site(server, folder)
        with place.role("scheduler", ["scheduler"]):
            yield place
    finally:
        server.stop()


@pytest.fixture(scope="session")
def tiny_folder(site: Site) -> Path:
    return tiny_model()


@pytest.fixture
async def fleet(site: Site) -> AsyncIterator[Fleet]:
    async with site.connect() as client:
        yield client


@pytest.fixture(scope="session")
def tiny(site: Site, tiny_folder: Path) -> Iterator[Staff]:
    """A worker that runs two requests at once in a small cache, and has an adapter."""
    few = ["--max-num-seqs", "2", "--max-model-len", "2560", "--num-gpu-blocks-override", str(BLOCKS)]
    adapter = ["--enable-lora", "--lora-modules", f"{LEFT}={tiny_folder / ADAPTER}"]
    flags = [*DUMMY, *few, *adapter]
    with site.worker(Plan("tiny-1", TINY, tiny_folder, 0, options=["--slots", "8"], flags=flags)) as worker:
        yield worker


@pytest.fixture
async def tiny_straight(tiny: Staff) -> AsyncIterator[Straight]:
    """That worker's vLLM, without the fleet."""
    async with straight(tiny.role.engine()) as client:
        yield client
