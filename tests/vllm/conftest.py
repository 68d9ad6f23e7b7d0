"""Real vLLM on the CPU: few engines, since each takes half a minute to come up, each on a core of its own.

The tests are skipped where there is no interpreter with vLLM; TOKENFLEET_REQUIRE_VLLM=1 makes that a failure.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bench.vllm_env.models import ADAPTER, TINY, tiny_model
from producer.fleet import Fleet
from tests.vllm.roles import DUMMY
from tests.vllm.site import Plan, Site, Staff, a_site
from tests.vllm.straight import Straight, straight

LEFT = "left"
"""The adapter that the first worker with the tiny model has loaded."""
BLOCKS = 24
"""Of 128 tokens each, one of which vLLM keeps for itself: two long jobs do not fit."""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with a_site(tmp_path_factory.mktemp("vllm")) as place:
        yield place


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
